//! Checks of the addresses that the gateway listens on.
//!
//! Owns the judgement of a taken port, of an admin listener that refuses, and of missing host
//! names. Does not serve. Invariant: a port that is tried is free again afterwards.

use std::net::{SocketAddr, TcpListener};

use moongate_listener::ListenAddress;

use super::codes::DoctorCode;
use super::examined::{ExaminedGateway, RunningGateway};
use super::finding::DoctorFinding;

/// Program name of the gateway.
const OWN_PROGRAM: &str = "moongate";

/// Looks for problems of the listeners.
pub(super) fn check(gateway: &ExaminedGateway) -> Vec<DoctorFinding> {
    let mut found = Vec::new();
    let listen = gateway
        .addresses
        .iter()
        .flat_map(|addresses| &addresses.listen);
    match &gateway.answer {
        RunningGateway::Running => {}
        RunningGateway::Refused(why) => {
            let fix = "pass `--admin-key`, or set MOONGATE_ADMIN_KEY";
            found.push(DoctorFinding::new(
                DoctorCode::AdminUnreachable,
                format!("the admin listener refuses: {why}"),
                fix,
            ));
        }
        RunningGateway::None(why) => {
            let admin = gateway
                .addresses
                .iter()
                .filter_map(|addresses| addresses.admin.as_ref());
            for (address, setting) in listen
                .map(|a| (a, "listen"))
                .chain(admin.map(|a| (a, "admin")))
            {
                let ListenAddress::Tcp(address) = address else {
                    continue;
                };
                found.extend(check_port(*address, setting, why));
            }
        }
    }
    found.extend(check_hosts(gateway));
    found
}

/// Tries a port that no gateway of ours answers on.
fn check_port(address: SocketAddr, setting: &str, why: &str) -> Option<DoctorFinding> {
    // Other errors, such as a missing right for a low port, say nothing about another program.
    let taken = TcpListener::bind(address)
        .err()
        .filter(|error| error.kind() == std::io::ErrorKind::AddrInUse)?;
    let owner = moongate_platform::port_owner::find(address.port());
    match owner {
        // A gateway is there, and its admin listener is not where the config says.
        Some(owner) if owner.starts_with(OWN_PROGRAM) => {
            let message = format!(
                "a gateway listens on {address}, but its admin listener does not answer: {why}"
            );
            Some(DoctorFinding::new(
                DoctorCode::AdminUnreachable,
                message,
                "pass its address with `--admin`, or set `gateway.admin`",
            ))
        }
        owner => {
            let owner = owner.map_or_else(|| taken.to_string(), |owner| format!("{owner} uses it"));
            let message = format!("`gateway.{setting}`: {address} is taken: {owner}");
            let fix = format!("stop that program, or set `gateway.{setting}` to another port");
            Some(DoctorFinding::new(DoctorCode::PortTaken, message, fix))
        }
    }
}

/// Finds a gateway for other machines that accepts no name.
fn check_hosts(gateway: &ExaminedGateway) -> Option<DoctorFinding> {
    let plan = &gateway.loaded.as_ref().ok()?.plan;
    let open = plan.listen.iter().find(|address| address.is_open())?;
    if plan.public_url.is_some() || !plan.allowed_hosts.is_empty() {
        return None;
    }
    let message =
        format!("{open} accepts other machines, but requests with this machine's name are refused");
    let fix = "add the name that clients use: `gateway.allowed_hosts = [\"mcp.example.com\"]`";
    Some(DoctorFinding::new(DoctorCode::HostNotAllowed, message, fix))
}
