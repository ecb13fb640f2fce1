//! Asynchronous errors, reported through the handler of `VipErrorCallback`.

use crate::abi::{
    VIP_ERROR_CODE, VIP_ERROR_DESCRIPTOR, VIP_ERROR_HANDLER, VIP_RESOURCE_CODE, VIP_ULONG, status,
};
use crate::border::Answer;
use crate::handles;
use crate::objects::callbacks::Context;
use crate::objects::nic::{Kind, Nic};
use core::ptr::null_mut;
use kiban_os::lock;
use kiban_vi::Event;
use std::sync::Arc;
use std::time::Duration;

pub(crate) fn set(nic: &Arc<Nic>, context: Context, handler: Option<VIP_ERROR_HANDLER>) -> Answer {
    let mut errors = lock(&nic.callbacks.errors);
    if handler.is_some() && !errors.listening {
        let its_nic = nic.clone();
        nic.callbacks.start(move || {
            while let Ok(event) = its_nic.core.event_wait(Duration::MAX) {
                report(&its_nic, describe(&its_nic, event));
            }
        })?;
        errors.listening = true;
    }
    errors.callback = handler.map(|handler| (context, handler));
    Ok(())
}

fn report(nic: &Nic, mut error: VIP_ERROR_DESCRIPTOR) {
    let callback = lock(&nic.callbacks.errors).callback;
    if let Some((context, handler)) = callback {
        // SAFETY: the program registered a function of this type (vipl.h), and the error descriptor outlives
        // the call.
        unsafe { handler(context.0, &raw mut error) };
    }
}

fn describe(nic: &Nic, event: Event) -> VIP_ERROR_DESCRIPTOR {
    let of_vi = |vi: u32, operation: u32, code| VIP_ERROR_DESCRIPTOR {
        NicHandle: nic.handle(),
        ViHandle: nic.handle_of(Kind::Vi, vi),
        CQHandle: null_mut(),
        DescriptorPtr: null_mut(),
        OpCode: VIP_ULONG::from(operation),
        ResourceCode: VIP_RESOURCE_CODE::VI,
        ErrorCode: code,
    };
    match event {
        Event::ConnectionLost { vi, .. } => of_vi(vi, status::OP_SEND, VIP_ERROR_CODE::CONN_LOST),
        Event::ReceiveQueueEmpty { vi } => of_vi(vi, status::OP_RECEIVE, VIP_ERROR_CODE::RECVQ_EMPTY),
        Event::RdmaProtection { vi, write: true } => {
            of_vi(vi, status::OP_REMOTE_RDMA_WRITE, VIP_ERROR_CODE::RDMAW_PROT)
        }
        Event::RdmaProtection { vi, write: false } => {
            of_vi(vi, status::OP_RDMA_READ, VIP_ERROR_CODE::RDMAR_PROT)
        }
        Event::CompletionQueueFull { queue } => VIP_ERROR_DESCRIPTOR {
            ViHandle: null_mut(),
            CQHandle: nic.handle_of(Kind::Queue, queue),
            ResourceCode: VIP_RESOURCE_CODE::CQ,
            ..of_vi(0, status::OP_SEND, VIP_ERROR_CODE::VI_OVERRUN)
        },
    }
}

/// Handles a descriptor whose memory was deregistered before its completion could be written.
pub(crate) fn completion_had_no_memory(nic: &Nic, descriptor: Context, operation: u32) {
    if lock(&nic.callbacks.errors).callback.is_none() {
        return;
    }
    let Ok(nic) = handles::nic(nic.handle()) else { return };
    let callbacks = nic.clone();
    // If no thread can be started, the handler is not called. The program still gets the descriptor, with its
    // error code.
    let _ = callbacks.callbacks.start(move || {
        let descriptor = descriptor;
        report(
            &nic,
            VIP_ERROR_DESCRIPTOR {
                NicHandle: nic.handle(),
                ViHandle: null_mut(),
                CQHandle: null_mut(),
                DescriptorPtr: descriptor.0.cast(),
                OpCode: VIP_ULONG::from(operation),
                ResourceCode: VIP_RESOURCE_CODE::DESCRIPTOR,
                ErrorCode: VIP_ERROR_CODE::COMP_PROT,
            },
        );
    });
}
