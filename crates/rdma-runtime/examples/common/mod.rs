//! Code shared by the RDMA examples: selects which ends run in this process, and over which lower layer.
//!
//! ```text
//! EXAMPLE [--over LOWER]                        both ends in this process, each with its own NIC
//! EXAMPLE serve ADDRESS [--over LOWER]          one end; with port 0, chooses a port and prints it
//! EXAMPLE connect ADDRESS [WORD ...] [--over LOWER]
//! ```
//!
//! LOWER is `tcp` (by default), `tcp:ADDRESS`, `board`, `board:NAME`, `efe:ADDRESS` or `efe-raw:INTERFACE`,
//! where ADDRESS is an address of this host.

use kiban_rdma_runtime::{Address, Connect, Context, Listener, Lower};
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// How long to wait for the other end.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The result of an example: any error ends it.
pub(crate) type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Runs the end given in the arguments, or both ends. `connect` receives the arguments after the address.
pub(crate) fn run(
    usage: &str,
    serve: fn(&Context, &Listener) -> Outcome,
    connect: fn(&Context, Address, &[String]) -> Outcome,
) -> Outcome {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{usage}");
        return Ok(());
    }
    let lower: Lower = match words.iter().position(|word| word == "--over") {
        Some(at) if at + 1 < words.len() => words.drain(at..at + 2).nth(1).unwrap_or_default().parse()?,
        Some(_) => return Err("--over requires a lower layer, such as tcp, roce or efe:ADDRESS".into()),
        None => Lower::Tcp { from: None },
    };
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => both(&lower, serve, connect),
        ["serve", address] => {
            let address = address.parse()?;
            let context = Context::open(&lower.serving(address))?;
            let listener = context.listen(address, &Connect::default())?;
            println!("listening on {}", listener.address());
            serve(&context, &listener)
        }
        ["connect", address, ..] => {
            let address = address.parse()?;
            connect(&Context::open(&lower.towards(address)?)?, address, &words[2..])
        }
        _ => Err(format!("unrecognized arguments\n{usage}").into()),
    }
}

fn both(
    lower: &Lower,
    serve: fn(&Context, &Listener) -> Outcome,
    connect: fn(&Context, Address, &[String]) -> Outcome,
) -> Outcome {
    let (server, client, at) = match lower {
        Lower::Tcp { from } => (lower.clone(), lower.clone(), from.unwrap_or(Ipv4Addr::LOCALHOST.into())),
        // With RoCEv2, too, each NIC has an address of its own.
        Lower::Roce { at } => {
            let at = at.unwrap_or(Ipv4Addr::LOCALHOST.into());
            let client = Lower::Roce { at: None }.towards(SocketAddr::new(at, 0).into())?;
            (Lower::Roce { at: Some(at) }, client, at)
        }
        // An EFE endpoint is identified by its address, so the client takes the next address of the loopback
        // network.
        Lower::EfeUdp { at } => {
            let next = match at.ip() {
                IpAddr::V4(ip) => IpAddr::from(Ipv4Addr::from_bits(ip.to_bits().wrapping_add(1))),
                IpAddr::V6(_) => {
                    return Err("over IPv6, run two processes: serve ADDRESS, connect ADDRESS".into());
                }
            };
            (lower.clone(), Lower::EfeUdp { at: SocketAddr::new(next, at.port()) }, at.ip())
        }
        Lower::Board { .. } | Lower::Nic { .. } => {
            return Err(
                "over a board, run two processes with its address: serve ADDRESS, connect ADDRESS".into()
            );
        }
        Lower::EfeRaw { .. } => {
            return Err("over Ethernet, run two processes: serve ADDRESS, connect ADDRESS".into());
        }
    };
    let (server, client) = (Context::open(&server)?, Context::open(&client)?);
    let listener = server.listen(SocketAddr::new(at, 0).into(), &Connect::default())?;
    std::thread::scope(|threads| {
        let serving = threads.spawn(|| serve(&server, &listener));
        connect(&client, listener.address(), &[])?;
        serving.join().expect("the server does not panic")
    })
}
