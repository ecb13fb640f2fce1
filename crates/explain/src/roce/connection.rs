//! Sorts packets into connections: pairs of queue pairs.
//!
//! Flow             the packets from one host to a queue pair of another. A packet names only the queue pair
//!                  to which it goes, so a connection is two flows.
//! Pairing          the messages of communication management name both queue pairs. Without them, flows are
//!                  paired by their PSNs: a response carries the PSN of its request. The pair of flows with
//!                  most matches wins.
//! Ends             end 0 is the client: the sender of the REQ or, without one, of the first request.
//! Limits           a PSN that many flows use at a time is compared with [`CANDIDATES_MAX`] of them. A flow
//!                  without a partner, of a capture of one direction, is a connection by itself.

use super::packet::{Captured, Cm, Kind};
use kiban_rdma::wire::roce::{Aeth, Operation};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

/// The number of flows with the same PSN that a response is compared with.
const CANDIDATES_MAX: usize = 16;

/// A packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) number: u32,
    /// Nanoseconds since the first packet of the file.
    pub(crate) at: u64,
    /// The end that sent it.
    pub(crate) end: usize,
    pub(crate) kind: Kind,
    pub(crate) psn: u32,
    pub(crate) aeth: Option<Aeth>,
    pub(crate) dma_bytes: Option<u32>,
    pub(crate) bytes: u32,
    pub(crate) is_marked: bool,
    pub(crate) is_damaged: bool,
}

impl Packet {
    /// Returns the operation, if it is a request.
    pub(crate) fn request(&self) -> Option<Operation> {
        match self.kind {
            Kind::Transport(operation) if !operation.is_response() && !self.is_damaged => Some(operation),
            _ => None,
        }
    }

    /// Returns whether it is a response or an acknowledgement.
    pub(crate) fn is_response(&self) -> bool {
        let is_response = match self.kind {
            Kind::Transport(operation) => operation.is_response(),
            kind => kind == Kind::SelectiveAck,
        };
        is_response && !self.is_damaged
    }
}

/// A connection, as far as it was captured.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) ends: [IpAddr; 2],
    /// The queue pair of each end, if packets to it were captured.
    pub(crate) qpns: [Option<u32>; 2],
    pub(crate) packets: Vec<Packet>,
    /// The path MTU of the REQ.
    pub(crate) path_mtu: Option<u32>,
    /// Upper bounds of the time from the place of the capture to each end and back, ns: what the end took to
    /// answer a message of communication management.
    pub(crate) reaches: [Option<u64>; 2],
}

/// The packets to one queue pair.
struct Flow {
    source: IpAddr,
    target: IpAddr,
    qpn: u32,
    partner: Option<usize>,
    has_rc: bool,
}

/// What the messages of communication management say, by the sender and its communication id.
#[derive(Default)]
struct Management {
    requests: BTreeMap<(IpAddr, u32), (u64, u32, Option<u32>)>,
    replies: BTreeMap<(IpAddr, u32), (u64, IpAddr, u32, u32)>,
    ready: BTreeMap<(IpAddr, u32), u64>,
}

impl Management {
    fn take(&mut self, packet: &Captured) {
        let Kind::Management(Some(message)) = packet.kind else { return };
        match message {
            // Of repeated messages the first counts: the times between them are upper bounds.
            Cm::Request { id, qpn, path_mtu } => {
                self.requests.entry((packet.source, id)).or_insert((packet.at, qpn, path_mtu));
            }
            Cm::Reply { id, request, qpn } => {
                self.replies.entry((packet.source, id)).or_insert((packet.at, packet.target, request, qpn));
            }
            Cm::Ready { reply, .. } => {
                self.ready.entry((packet.target, reply)).or_insert(packet.at);
            }
        }
    }
}

/// A connection that was set up within the capture.
struct SetUp {
    client: usize,
    path_mtu: Option<u32>,
    reaches: [Option<u64>; 2],
}

/// Returns the connections in the order of their first packets.
pub(crate) fn connections(captured: &[Captured]) -> Vec<Connection> {
    let mut flows: Vec<Flow> = Vec::new();
    let mut index = HashMap::new();
    let mut management = Management::default();
    let mut of: Vec<Option<usize>> = Vec::with_capacity(captured.len());
    for packet in captured {
        management.take(packet);
        let is_connected = matches!(packet.kind, Kind::Transport(_) | Kind::SelectiveAck | Kind::Cnp);
        let key = (packet.source, packet.target, packet.qpn);
        let known = index.get(&key).copied();
        let flow = known.or_else(|| {
            // The queue pair of a damaged packet may be wrong.
            (is_connected && packet.is_damaged != Some(true)).then(|| {
                let (source, target, qpn) = key;
                flows.push(Flow { source, target, qpn, partner: None, has_rc: false });
                index.insert(key, flows.len() - 1);
                flows.len() - 1
            })
        });
        let flow = flow.filter(|_| is_connected);
        if let Some(flow) = flow {
            flows[flow].has_rc |= packet.kind != Kind::Cnp;
        }
        of.push(flow);
    }
    let set_up = pair_by_management(&mut flows, &index, &management);
    pair_by_psns(captured, &of, &mut flows);
    build(captured, &of, &flows, &set_up)
}

type Index = HashMap<(IpAddr, IpAddr, u32), usize>;

/// Pairs the flows of connections whose REQ and REP were captured. Returns them by the flow from the client.
fn pair_by_management(flows: &mut [Flow], index: &Index, management: &Management) -> BTreeMap<usize, SetUp> {
    let mut set_up = BTreeMap::new();
    for ((server, id), (replied, client, request, server_qpn)) in &management.replies {
        let Some((requested, client_qpn, path_mtu)) = management.requests.get(&(*client, *request)) else {
            continue;
        };
        let there = index.get(&(*client, *server, *server_qpn)).copied();
        let back = index.get(&(*server, *client, *client_qpn)).copied();
        let ready = management.ready.get(&(*server, *id));
        let reaches = [ready.and_then(|ready| ready.checked_sub(*replied)), replied.checked_sub(*requested)];
        if let (Some(there), Some(back)) = (there, back)
            && flows[there].partner.is_none()
            && flows[back].partner.is_none()
            && there != back
        {
            (flows[there].partner, flows[back].partner) = (Some(back), Some(there));
        }
        for flow in [there, back].into_iter().flatten() {
            let client = usize::from(Some(flow) != there);
            set_up.insert(flow, SetUp { client, path_mtu: *path_mtu, reaches });
        }
    }
    set_up
}

/// Pairs the other flows by the PSNs of responses.
fn pair_by_psns(captured: &[Captured], of: &[Option<usize>], flows: &mut [Flow]) {
    // The flows between two hosts, in one direction, that sent a request with a PSN.
    let mut senders: HashMap<(IpAddr, IpAddr, u32), Vec<usize>> = HashMap::new();
    let mut matches: HashMap<(usize, usize), u32> = HashMap::new();
    for (packet, flow) in captured.iter().zip(of) {
        let Some(flow) = flow.filter(|flow| flows[*flow].partner.is_none()) else { continue };
        match packet.kind {
            Kind::Transport(operation) if !operation.is_response() => {
                let known = senders.entry((packet.source, packet.target, packet.psn)).or_default();
                if !known.contains(&flow) {
                    if known.len() == CANDIDATES_MAX {
                        known.remove(0);
                    }
                    known.push(flow);
                }
            }
            Kind::Transport(
                Operation::Acknowledge
                | Operation::AtomicAcknowledge
                | Operation::ReadResponseFirst
                | Operation::ReadResponseOnly,
            ) => {
                let known = senders.get(&(packet.target, packet.source, packet.psn));
                for sender in known.into_iter().flatten().filter(|sender| **sender != flow) {
                    *matches.entry(((*sender).min(flow), (*sender).max(flow))).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    let mut matches: Vec<((usize, usize), u32)> = matches.into_iter().collect();
    matches.sort_by_key(|(pair, count)| (std::cmp::Reverse(*count), *pair));
    for ((one, other), _) in matches {
        if flows[one].partner.is_none() && flows[other].partner.is_none() {
            (flows[one].partner, flows[other].partner) = (Some(other), Some(one));
        }
    }
}

fn build(
    captured: &[Captured],
    of: &[Option<usize>],
    flows: &[Flow],
    set_up: &BTreeMap<usize, SetUp>,
) -> Vec<Connection> {
    let mut connections: Vec<Connection> = Vec::new();
    // The connection of each flow, and the end that sends it.
    let mut place: Vec<Option<(usize, usize)>> = vec![None; flows.len()];
    for (packet, flow) in captured.iter().zip(of) {
        let Some(flow) = flow.filter(|flow| {
            flows[*flow].has_rc || flows[*flow].partner.is_some_and(|partner| flows[partner].has_rc)
        }) else {
            continue;
        };
        let (connection, end) = *place[flow].get_or_insert_with(|| {
            let Flow { source, target, qpn, partner, .. } = flows[flow];
            let back = partner.map(|partner| flows[partner].qpn);
            let known = set_up.get(&flow);
            let is_response = matches!(packet.kind, Kind::SelectiveAck | Kind::Cnp)
                || matches!(packet.kind, Kind::Transport(operation) if operation.is_response());
            let end = known.map_or(usize::from(is_response), |known| known.client);
            let (mut ends, mut qpns) = ([source, target], [back, Some(qpn)]);
            if end == 1 {
                (ends, qpns) = ([target, source], [Some(qpn), back]);
            }
            let path_mtu = known.and_then(|known| known.path_mtu);
            let reaches = known.map_or([None; 2], |known| known.reaches);
            connections.push(Connection { ends, qpns, packets: Vec::new(), path_mtu, reaches });
            (connections.len() - 1, end)
        });
        if let Some(partner) = flows[flow].partner {
            place[partner].get_or_insert((connection, 1 - end));
        }
        connections[connection].packets.push(Packet {
            number: packet.number,
            at: packet.at,
            end,
            kind: packet.kind,
            psn: packet.psn,
            aeth: packet.aeth,
            dma_bytes: packet.dma_bytes,
            bytes: packet.bytes,
            is_marked: packet.is_marked,
            is_damaged: packet.is_damaged == Some(true),
        });
    }
    connections
}
