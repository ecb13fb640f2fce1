//! VIs: creating, querying, modifying and destroying.

use crate::abi::{
    VIP_BOOLEAN, VIP_CQ_HANDLE, VIP_PVOID, VIP_RETURN, VIP_VI_ATTRIBUTES, VIP_VI_STATE, service,
};
use crate::border::Answer;
use crate::handles::{self, Object};
use crate::memory;
use crate::objects::members::Vi;
use crate::objects::nic::{Kind, Nic};
use kiban_vi::{PeerAttributes, Reliability, ViAttributes, ViState};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::Relaxed};

fn reliability(level: u16) -> Answer<Reliability> {
    match level {
        service::UNRELIABLE => Ok(Reliability::Unreliable),
        service::RELIABLE_DELIVERY => Ok(Reliability::Delivery),
        service::RELIABLE_RECEPTION => Ok(Reliability::Reception),
        _ => Err(VIP_RETURN::INVALID_RELIABILITY_LEVEL),
    }
}

const fn level(reliability: Reliability) -> u16 {
    match reliability {
        Reliability::Unreliable => service::UNRELIABLE,
        Reliability::Delivery => service::RELIABLE_DELIVERY,
        Reliability::Reception => service::RELIABLE_RECEPTION,
    }
}

fn attributes_of(nic: &Arc<Nic>, given: &VIP_VI_ATTRIBUTES) -> Answer<ViAttributes> {
    let reliability = reliability(given.ReliabilityLevel)?;
    let most = nic.config.transfer_bytes_max;
    let transfer_bytes_max = match given.MaxTransferSize {
        0 => most as u32,
        bytes if bytes as usize <= most => bytes as u32,
        _ => return Err(VIP_RETURN::INVALID_MTU),
    };
    if given.EnableRdmaRead != 0 && reliability == Reliability::Unreliable {
        return Err(VIP_RETURN::INVALID_RDMAREAD);
    }
    Ok(ViAttributes {
        reliability,
        transfer_bytes_max,
        qos: given.QoS.addr() as u64,
        tag: memory::tag_of(nic, given.Ptag)?,
        rdma_write: given.EnableRdmaWrite != 0,
        rdma_read: given.EnableRdmaRead != 0,
    })
}

/// Converts the attributes of a VI for the program.
fn to_c(nic: &Nic, attributes: &ViAttributes) -> VIP_VI_ATTRIBUTES {
    VIP_VI_ATTRIBUTES {
        ReliabilityLevel: level(attributes.reliability),
        MaxTransferSize: attributes.transfer_bytes_max.into(),
        QoS: core::ptr::without_provenance_mut(attributes.qos as usize),
        Ptag: nic.handle_of(Kind::Tag, attributes.tag),
        EnableRdmaWrite: VIP_BOOLEAN::from(attributes.rdma_write),
        EnableRdmaRead: VIP_BOOLEAN::from(attributes.rdma_read),
    }
}

/// Converts the attributes of a peer's VI, which have no protection tag.
pub(crate) fn peer_to_c(remote: &PeerAttributes) -> VIP_VI_ATTRIBUTES {
    VIP_VI_ATTRIBUTES {
        ReliabilityLevel: level(remote.reliability),
        MaxTransferSize: remote.transfer_bytes_max.into(),
        QoS: core::ptr::without_provenance_mut(remote.qos as usize),
        Ptag: core::ptr::null_mut(),
        EnableRdmaWrite: VIP_BOOLEAN::from(remote.rdma_write),
        EnableRdmaRead: VIP_BOOLEAN::from(remote.rdma_read),
    }
}

/// Returns the NIC's number for a completion queue, if a handle is given.
fn queue_of(nic: &Arc<Nic>, pointer: VIP_CQ_HANDLE) -> Answer<Option<u32>> {
    if pointer.is_null() {
        return Ok(None);
    }
    let queue = handles::queue(pointer)?;
    if Arc::ptr_eq(&queue.nic, nic) { Ok(Some(queue.number)) } else { Err(VIP_RETURN::INVALID_PARAMETER) }
}

pub(crate) fn create(
    nic: &Arc<Nic>,
    given: &VIP_VI_ATTRIBUTES,
    sends: VIP_CQ_HANDLE,
    receives: VIP_CQ_HANDLE,
) -> Answer<VIP_PVOID> {
    let attributes = attributes_of(nic, given)?;
    let (sends, receives) = (queue_of(nic, sends)?, queue_of(nic, receives)?);
    let number = nic.core.create_vi(attributes, sends, receives)?;
    let vi = Arc::new(Vi {
        nic: nic.clone(),
        number,
        tag: AtomicU32::new(attributes.tag),
        reports: [sends.is_some(), receives.is_some()],
        user_data: AtomicPtr::default(),
        lines: Default::default(),
    });
    match handles::adopt(nic, Kind::Vi, number, Object::Vi(vi)) {
        Ok(handle) => Ok(handle.as_pointer()),
        Err(code) => {
            nic.core.destroy_vi(number)?;
            Err(code)
        }
    }
}

pub(crate) fn destroy(vi: &Vi) -> Answer {
    vi.nic.core.destroy_vi(vi.number)?;
    handles::disown(&vi.nic, Kind::Vi, vi.number);
    Ok(())
}

/// Returns the state, the attributes, and whether the send queue and the receive queue are empty.
pub(crate) fn query(vi: &Vi) -> Answer<(VIP_VI_STATE, VIP_VI_ATTRIBUTES, bool, bool)> {
    let (state, attributes, sends, receives) = vi.nic.core.vi(vi.number)?;
    let state = match state {
        ViState::Idle => VIP_VI_STATE::IDLE,
        ViState::ConnectPending => VIP_VI_STATE::CONNECT_PENDING,
        ViState::Connected => VIP_VI_STATE::CONNECTED,
        ViState::Error => VIP_VI_STATE::ERROR,
    };
    Ok((state, to_c(&vi.nic, &attributes), sends, receives))
}

pub(crate) fn set(vi: &Vi, given: &VIP_VI_ATTRIBUTES) -> Answer {
    let attributes = attributes_of(&vi.nic, given)?;
    // Posted descriptors have been checked against the old attributes.
    let (_, _, sends, receives) = vi.nic.core.vi(vi.number)?;
    if !(sends && receives) {
        return Err(VIP_RETURN::INVALID_STATE);
    }
    vi.nic.core.set_vi(vi.number, attributes)?;
    vi.tag.store(attributes.tag, Relaxed);
    Ok(())
}
