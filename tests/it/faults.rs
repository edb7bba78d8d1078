//! What goes wrong with servers and with connections, through the mock, for clients of both eras:
//! it costs the calls that it concerns, says why, and leaves everything else as it was.

mod cancel;
mod child;
mod chunks;
mod clients;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod files;
mod fault_row;
mod floods;
mod framing;
mod hostile;
mod limits;
mod links;
#[cfg(target_os = "linux")]
mod memory;
mod parked;
mod http1;
mod pings;
mod pipe;
mod raw;
mod reconnect;
mod resume;
mod rig;
mod rows;
mod sse;
mod stream;
mod supervise;
mod table;
mod tcp;
mod tasks;
mod web;
