//! Queue pairs of identifiers.

use core::ffi::c_int;

use nix::errno::Errno;

use super::id::Id;
use crate::adapter::Subject;
use crate::boundary::layout::{
    IBV_QPS_INIT, IBV_QPT_RC, ibv_cq_init_attr_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
};
use crate::boundary::{Handle, Out, tell_made, zeroed};
use crate::completion::{
    self, Channel, Queue, create_channel, ibv_destroy_comp_channel, ibv_destroy_cq,
};
use crate::errors::{Result, done, require};
use crate::memory::Domain;
use crate::transfer::{Wanted, create, destroy};

/// Makes a completion queue for an identifier, with a channel; both go with its queue pair.
fn make_queue(id: Handle<Id>, depth: u32) -> Result<(Handle<Channel>, Handle<Queue>)> {
    let context = Handle::at(id.read()?.verbs);
    let channel = create_channel(context)?;
    let mut wanted: ibv_cq_init_attr_ex = zeroed();
    wanted.cqe = depth.max(1);
    wanted.cq_context = id.pointer();
    wanted.channel = channel.pointer();
    let queue = completion::create(context, &wanted, |_| ()).inspect_err(|_| {
        ibv_destroy_comp_channel(channel);
    })?;
    id.get()?.state().own_queues.push((channel, queue));
    Ok((channel, queue))
}

/// Makes the queue pair of an identifier, and the completion queues that the program leaves out.
///
/// # Errors
/// `EINVAL`: the identifier has no device, or a queue pair; it is not for a reliable connection.
pub(super) fn make(id: Handle<Id>, domain: Handle<Domain>, wanted: &mut Wanted) -> Result<()> {
    let own = id.get()?;
    let c = id.read()?;
    let has_pair = own.state().pair.get().is_ok();
    let is_right = !c.verbs.is_null() && !has_pair && wanted.init.qp_type == IBV_QPT_RC;
    require(is_right, Errno::EINVAL)?;
    let domain = match domain.is_null() {
        true => Handle::at(c.pd),
        false => domain,
    };
    let made = (|| {
        if wanted.init.send_cq.is_null() {
            let (channel, queue) = make_queue(id, wanted.init.cap.max_send_wr)?;
            wanted.init.send_cq = queue.pointer();
            id.change(|c| c.send_cq_channel = channel.pointer());
        }
        if wanted.init.recv_cq.is_null() {
            let (channel, queue) = make_queue(id, wanted.init.cap.max_recv_wr)?;
            wanted.init.recv_cq = queue.pointer();
            id.change(|c| c.recv_cq_channel = channel.pointer());
        }
        create(domain, wanted)
    })();
    let pair = made.inspect_err(|_| end_queues(own))?;
    let known = pair.get()?;
    // As librdmacm does: it takes receives from now on.
    known.set_state(pair, IBV_QPS_INIT);
    wanted.init = known.init;
    own.state().pair = pair;
    receive_events(id, own, known.qpn);
    id.change(|c| {
        c.qp = pair.pointer();
        c.pd = domain.pointer();
        c.send_cq = known.init.send_cq;
        c.recv_cq = known.init.recv_cq;
        c.srq = known.init.srq;
    });
    Ok(())
}

/// Makes a queue pair, and tells the program what it got.
pub(super) fn tell(
    id: Handle<Id>,
    domain: Handle<Domain>,
    mut wanted: Wanted,
    attributes: Out<ibv_qp_init_attr>,
) -> Result<()> {
    make(id, domain, &mut wanted)?;
    tell_made(attributes, &wanted.init);
    Ok(())
}

pub(crate) extern "C" fn rdma_create_qp(
    id: Handle<Id>,
    domain: Handle<Domain>,
    attributes: Out<ibv_qp_init_attr>,
) -> c_int {
    done(|| {
        let wanted = Wanted::from(attributes.get()?);
        tell(id, domain, wanted, attributes)
    })
}

pub(crate) extern "C" fn rdma_create_qp_ex(
    id: Handle<Id>,
    attributes: Out<ibv_qp_init_attr_ex>,
) -> c_int {
    done(|| {
        let (wanted, domain) = Wanted::extended(attributes)?;
        tell(id, domain, wanted, attributes.cast())
    })
}

/// Ends the completion queues that were made for an identifier.
fn end_queues(own: &Id) {
    let queues = core::mem::take(&mut own.state().own_queues);
    for (channel, queue) in queues {
        ibv_destroy_cq(queue);
        ibv_destroy_comp_channel(channel);
    }
}

/// Takes the queue pair that the structure of an identifier names.
///
/// Programs put one there themselves, or move it from another identifier, as librdmacm lets them.
pub(super) fn adopt(id: Handle<Id>, own: &Id) {
    let named = Handle::at(id.read().map_or(core::ptr::null_mut(), |c| c.qp));
    let former = core::mem::replace(&mut own.state().pair, named);
    if former == named {
        return;
    }
    let Ok(known) = named.get() else {
        own.state().pair = Handle::NULL;
        return;
    };
    if known.is_reset() {
        known.set_state(named, IBV_QPS_INIT);
    }
    receive_events(id, own, known.qpn);
}

/// Takes the events about the connection of a queue pair.
pub(super) fn receive_events(id: Handle<Id>, own: &Id, qpn: u32) {
    let notify = move |event: &_| super::connect::take(id, event);
    own.adapter
        .receive(Subject::Connection(qpn), Box::new(notify));
}

pub(crate) extern "C" fn rdma_destroy_qp(id: Handle<Id>) {
    let Ok(own) = id.get() else {
        return;
    };
    adopt(id, own);
    let pair = core::mem::replace(&mut own.state().pair, Handle::NULL);
    if !pair.is_null() {
        // The program may have ended it itself.
        let _ended = destroy(pair);
    }
    id.change(|c| c.qp = core::ptr::null_mut());
    end_queues(own);
}
