//! Executes the requests of a program. Every number in a request is first looked up among the program's own
//! objects; sizes are checked by the NIC.

use super::client::{Client, ENDS_MAX, Fault, KEYS_MAX, LISTENERS_MAX, PDS_MAX, SRQS_MAX};
use super::tables::Tables;
use kiban_board::Host;
use kiban_rdma::hif::{Answer, Notice, Refusal, Request, Transport};
use kiban_rdma::rnic::{Data, Notify, QpAttributes, RequestError, SendWork, StreamTraits};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of requests of a program before other work has a turn.
const TURN_REQUESTS: usize = 256;

const NONE: Answer = Answer::Number(0);

fn other(error: impl ToString) -> Refusal {
    Refusal::Other(error.to_string())
}

fn own(objects: &BTreeSet<u32>, number: u32, unknown: RequestError) -> Result<(), Refusal> {
    if objects.contains(&number) { Ok(()) } else { Err(Refusal::Request(unknown)) }
}

/// Refuses a further object of a kind of which the program has its share.
fn has_room(objects: usize, objects_max: usize) -> Result<(), Refusal> {
    if objects < objects_max { Ok(()) } else { Err(Refusal::Request(RequestError::TooMany)) }
}

/// Returns whether a program that has `own` queue pairs of the `all` that exist may create another: one that
/// has half of the maximum leaves the last eighth to others.
fn may_create_qp(own: usize, all: usize, qps_max: usize) -> bool {
    all < if own < qps_max.div_ceil(2) { qps_max } else { qps_max - qps_max / 8 }
}

impl Client {
    fn own_cq(&self, cq: u32) -> Result<(), Refusal> {
        if self.cqs.contains_key(&cq) { Ok(()) } else { Err(Refusal::Request(RequestError::UnknownCq)) }
    }

    fn own_qp(&self, qp: u32) -> Result<(), Refusal> {
        own(&self.qps, qp, RequestError::UnknownQp)
    }

    fn own_end(&self, end: u32) -> Result<(), Refusal> {
        match self.ends.contains(&end) {
            true => Ok(()),
            false => Err(other("the connection request was already answered, was withdrawn, or timed out")),
        }
    }
}

/// Executes a client's requests, up to a limit. All clients together may have `qps_max` queue pairs.
pub(super) fn work(
    clients: &mut BTreeMap<u64, Client>,
    tables: &mut Tables,
    qps_max: usize,
    number: u64,
    host: &mut Host<'_>,
) -> Result<(), Fault> {
    for _ in 0..TURN_REQUESTS {
        let Some(client) = clients.get_mut(&number) else { return Ok(()) };
        let Some((id, request)) = client.next_request()? else { return Ok(()) };
        match request {
            Request::PostSend { .. }
            | Request::PostReceive { .. }
            | Request::PostSrqReceive { .. }
            | Request::Room { .. }
            | Request::Unshare { .. } => post(client, request, host)?,
            request => {
                let qps: usize = clients.values().map(|client| client.qps.len()).sum();
                let Some(client) = clients.get_mut(&number) else { return Ok(()) };
                let may_create_qp = may_create_qp(client.qps.len(), qps, qps_max);
                let result = execute(client, tables, number, may_create_qp, request, host);
                let counters = &mut tables.counters;
                let of = &mut client.counters;
                let (all, own) = match result.is_ok() {
                    true => (&mut counters.requests, &mut of.requests),
                    false => (&mut counters.errors, &mut of.refused),
                };
                (*all, *own) = (*all + 1, *own + 1);
                client.notify(&Notice::Reply { number: id, result });
                client.flush()?;
            }
        }
    }
    Ok(())
}

/// Executes a request that has no reply. A refused work request is completed with an error.
fn post(client: &mut Client, request: Request, host: &mut Host<'_>) -> Result<(), Fault> {
    let Some(mut rdma) = host.rdma() else { return Err(Fault) };
    let core = &mut rdma.nic().core;
    match request {
        Request::PostSend { .. } => client.counters.sends += 1,
        Request::PostReceive { .. } | Request::PostSrqReceive { .. } => client.counters.receives += 1,
        _ => {}
    }
    match request {
        Request::PostSend { qp, work } if client.qps.contains(&qp) => {
            // The NIC consumes the request, so keep what its completion needs.
            let refused = SendWork::new(work.id, work.operation.clone(), Data::none());
            if core.post_send(qp, work).is_err() {
                let _ = core.complete_refused_send(qp, &refused);
            }
        }
        Request::PostReceive { qp, work } if client.qps.contains(&qp) => {
            let id = work.id;
            if core.post_receive(qp, work).is_err() {
                let _ = core.complete_refused_receive(qp, id);
            }
        }
        // A program counts the receives of its shared receive queue, so this fails only if it breaks a rule.
        Request::PostSrqReceive { srq, work } if client.srqs.contains(&srq) => {
            return core.post_srq_receive(srq, work).map_err(|_| Fault);
        }
        Request::Unshare { memory } => return client.unshare(memory),
        Request::Room { cq } if client.cqs.contains_key(&cq) => return client.pass_completions(cq, host),
        _ => return Err(Fault),
    }
    Ok(())
}

fn execute(
    client: &mut Client,
    tables: &mut Tables,
    number: u64,
    may_create_qp: bool,
    request: Request,
    host: &mut Host<'_>,
) -> Result<Answer, Refusal> {
    let Tables { listeners, ends, cqs, counters } = tables;
    if let Request::Listen { transport, local } = request {
        has_room(client.listeners.len(), LISTENERS_MAX)?;
        let (listener, local) = host.listen_rdma(transport, local).map_err(other)?;
        client.listeners.insert((transport, listener));
        listeners.insert((transport, listener), number);
        return Ok(Answer::Listening { listener, local });
    }
    if let Request::QueryAddress { index } = request {
        let address = host.addresses().nth(index as usize);
        return Ok(address.map_or(NONE, Answer::Address));
    }
    let mut rdma = host.rdma().ok_or_else(|| other("the board has no RDMA NIC"))?;
    let refused = Refusal::Request;
    match request {
        Request::CreatePd => {
            has_room(client.pds.len(), PDS_MAX)?;
            let pd = rdma.nic().core.create_pd().map_err(refused)?;
            client.pds.insert(pd);
            Ok(Answer::Number(pd))
        }
        Request::DestroyPd { pd } => {
            own(&client.pds, pd, RequestError::UnknownPd)?;
            rdma.nic().core.destroy_pd(pd).map_err(refused)?;
            client.pds.remove(&pd);
            Ok(NONE)
        }
        Request::Register { pd, pieces, address, access } => {
            own(&client.pds, pd, RequestError::UnknownPd)?;
            has_room(client.keys.len(), KEYS_MAX)?;
            let parts = client.registered_parts(&pieces).filter(|parts| !parts.is_empty());
            let parts = parts.ok_or(Refusal::Request(RequestError::BadAddress))?;
            let key = rdma.nic().core.register_blocks(pd, address, parts, access).map_err(refused)?;
            client.add_key(key, &pieces);
            Ok(Answer::Number(key))
        }
        Request::Deregister { stag, unbinds } => {
            // A work request may have changed the key, which is the tag's low byte.
            let known = client.keys.range(stag & !0xff..=stag | 0xff).next();
            let (&known, _) = known.ok_or(Refusal::Request(RequestError::UnknownStag))?;
            let nic = rdma.nic();
            let current = nic.core.current_stag(stag).unwrap_or(stag);
            let deregistered = match unbinds {
                true => nic.deregister_with_windows(current),
                false => nic.deregister(current),
            };
            deregistered.map_err(refused)?;
            client.remove_key(known);
            Ok(NONE)
        }
        Request::AllocateWindow { pd, type_2 } => {
            own(&client.pds, pd, RequestError::UnknownPd)?;
            has_room(client.keys.len(), KEYS_MAX)?;
            let key = rdma.nic().core.allocate_window(pd, type_2).map_err(refused)?;
            client.add_key(key, &[]);
            Ok(Answer::Number(key))
        }
        Request::CreateCq { memory, entries } => {
            let memory = client.take_memory(memory).ok_or_else(|| other("no such shared memory"))?;
            let (bytes, core) = (memory.len(), &mut rdma.nic().core);
            let created = core.create_cq(entries as usize).map_err(refused);
            let cq = created.inspect_err(|_| client.release_memory(bytes))?;
            if !client.add_cq(cq, entries as usize, memory) {
                client.release_memory(bytes);
                let _ = core.destroy_cq(cq);
                return Err(other("the shared memory is too small for the completion queue"));
            }
            let _ = core.arm(cq, Notify::Any);
            cqs.insert(cq, number);
            Ok(Answer::Number(cq))
        }
        Request::ResizeCq { cq, entries } => {
            client.own_cq(cq)?;
            rdma.nic().core.resize_cq(cq, entries as usize).map_err(refused)?;
            Ok(NONE)
        }
        Request::DestroyCq { cq } => {
            client.own_cq(cq)?;
            rdma.nic().core.destroy_cq(cq).map_err(refused)?;
            client.remove_cq(cq);
            cqs.remove(&cq);
            Ok(NONE)
        }
        Request::CreateSrq { pd, work_max } => {
            own(&client.pds, pd, RequestError::UnknownPd)?;
            has_room(client.srqs.len(), SRQS_MAX)?;
            let srq = rdma.nic().core.create_srq(pd, work_max as usize, 0).map_err(refused)?;
            client.srqs.insert(srq);
            Ok(Answer::Number(srq))
        }
        Request::SetSrqLimit { srq, limit } => {
            own(&client.srqs, srq, RequestError::UnknownSrq)?;
            rdma.nic().core.set_srq_limit(srq, limit as usize).map_err(refused)?;
            Ok(NONE)
        }
        Request::DestroySrq { srq } => {
            own(&client.srqs, srq, RequestError::UnknownSrq)?;
            rdma.nic().core.destroy_srq(srq).map_err(refused)?;
            client.srqs.remove(&srq);
            Ok(NONE)
        }
        Request::CreateQp { attributes } => {
            let QpAttributes { pd, send_cq, receive_cq, srq, .. } = attributes;
            own(&client.pds, pd, RequestError::UnknownPd)?;
            client.own_cq(send_cq)?;
            client.own_cq(receive_cq)?;
            srq.map_or(Ok(()), |srq| own(&client.srqs, srq, RequestError::UnknownSrq))?;
            if !may_create_qp {
                counters.refused += 1;
                return Err(other("too many queue pairs on this board: raise `sessions`"));
            }
            // A receive that is in the work ring but not processed yet has been posted, as far as the program
            // and its peer can tell. So a message without a receive waits instead of ending the connection.
            let attributes = QpAttributes { waits_for_receives: true, ..attributes };
            let qp = rdma.nic().core.create_qp(attributes).map_err(refused)?;
            client.qps.insert(qp);
            counters.accepted += 1;
            Ok(Answer::Number(qp))
        }
        Request::QueryQp { qp } => {
            client.own_qp(qp)?;
            let (_, state, traits) = rdma.nic().core.query_qp(qp).map_err(refused)?;
            Ok(Answer::Qp { state, ird: traits.ird, ord: traits.ord, extensions: traits.extensions })
        }
        Request::DestroyQp { qp } => {
            client.own_qp(qp)?;
            if let Some(end) = rdma.nic().end_of(qp) {
                client.ends.remove(&end);
                ends.remove(&end);
            }
            rdma.destroy_qp(qp);
            client.qps.remove(&qp);
            counters.ended += 1;
            Ok(NONE)
        }
        Request::AbortQp { qp } => {
            client.own_qp(qp)?;
            rdma.nic().core.abort(qp).map_err(refused)?;
            Ok(NONE)
        }
        Request::ResetQp { qp } => {
            client.own_qp(qp)?;
            rdma.nic().reset(qp).map_err(refused)?;
            Ok(NONE)
        }
        Request::Prepare { qp, acknowledges, depths } => {
            client.own_qp(qp)?;
            let core = &mut rdma.nic().core;
            core.outlive_peer_close(qp).map_err(refused)?;
            if acknowledges {
                core.acknowledge(qp).map_err(refused)?;
            }
            if let Some((ird, ord)) = depths {
                let traits = StreamTraits { ird, ord, extensions: true, kiban: true, may_send: false };
                core.expect_stream(qp, traits).map_err(refused)?;
            }
            Ok(NONE)
        }
        Request::GiveUp { qp } => {
            client.own_qp(qp)?;
            rdma.nic().core.give_up(qp).map_err(refused)?;
            Ok(NONE)
        }
        Request::SetRemoteAccess { qp, access } => {
            client.own_qp(qp)?;
            rdma.nic().core.set_remote_access(qp, access).map_err(refused)?;
            Ok(NONE)
        }
        Request::Disconnect { end } => {
            client.own_end(end)?;
            if let Some(qp) = rdma.nic().qp_of(end) {
                rdma.nic().core.disconnect(qp).map_err(refused)?;
            }
            Ok(NONE)
        }
        Request::Unlisten { transport, listener } => {
            if client.listeners.remove(&(transport, listener)) {
                listeners.remove(&(transport, listener));
                rdma.unlisten(transport, listener);
            }
            Ok(NONE)
        }
        Request::Connect { transport, remote, qp, depths, private_data } => {
            client.own_qp(qp)?;
            has_room(client.ends.len(), ENDS_MAX)?;
            let end = match transport {
                Transport::Tcp => rdma.connect(remote, qp, depths, &private_data),
                Transport::Roce => rdma.connect_roce(remote, qp, depths, &private_data),
                Transport::Efe => rdma.connect_efe_over_udp(remote, qp, depths, &private_data),
            };
            let end = end.map_err(other)?;
            client.ends.insert(end);
            ends.insert(end, number);
            Ok(Answer::Number(end))
        }
        Request::Accept { end, qp, depths, private_data } => {
            client.own_end(end)?;
            client.own_qp(qp)?;
            rdma.accept(end, qp, depths, &private_data).map_err(other)?;
            Ok(NONE)
        }
        Request::Reject { end, private_data } => {
            client.own_end(end)?;
            rdma.reject(end, &private_data).map_err(other)?;
            Ok(NONE)
        }
        Request::Release { end } => {
            if client.ends.remove(&end) && !rdma.nic().is_ending(end) {
                ends.remove(&end);
                rdma.forget(end);
            }
            Ok(NONE)
        }
        Request::Listen { .. }
        | Request::PostSend { .. }
        | Request::PostReceive { .. }
        | Request::PostSrqReceive { .. }
        | Request::Room { .. }
        | Request::Unshare { .. }
        | Request::QueryAddress { .. } => Err(other("not a request with a reply")),
    }
}
