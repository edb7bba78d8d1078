//! What goes wrong with servers and with connections, through the mock, for clients of both eras: it costs the calls
//! that it concerns, says why, and leaves everything else as it was.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "faults/cancel.rs"]
mod cancel;
#[path = "faults/child.rs"]
mod child;
#[path = "faults/clients.rs"]
mod clients;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/floods.rs"]
mod floods;
#[path = "faults/framing.rs"]
mod framing;
#[path = "faults/hostile.rs"]
mod hostile;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/links.rs"]
mod links;
#[path = "faults/parked.rs"]
mod parked;
#[path = "faults/http1.rs"]
mod http1;
#[path = "faults/pipe.rs"]
mod pipe;
#[path = "faults/raw.rs"]
mod raw;
#[path = "faults/reconnect.rs"]
mod reconnect;
#[path = "faults/resume.rs"]
mod resume;
#[path = "faults/rig.rs"]
mod rig;
#[path = "faults/rows.rs"]
mod rows;
#[path = "faults/sse.rs"]
mod sse;
#[path = "faults/stream.rs"]
mod stream;
#[path = "faults/supervise.rs"]
mod supervise;
#[path = "faults/table.rs"]
mod table;
#[path = "faults/tcp.rs"]
mod tcp;
#[path = "faults/tasks.rs"]
mod tasks;
#[path = "faults/web.rs"]
mod web;
#[allow(dead_code, unused_imports, reason = "each test crate uses a part of it")]
mod support;
