//! A config that changes under a running gateway, and servers that are restarted: what stays is not
//! touched, what is new is there, what is gone is gone, and nothing is half done.

mod apply;
mod files;
mod keys;
mod outlive;
mod restart;
mod same;
mod subscribed;
mod tls;
