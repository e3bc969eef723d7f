//! Interface adapters, handles, and exhausted resources.

use core::sync::atomic::{AtomicU64, Ordering};

use dat_core::attributes::IaAttributes;
use dat_core::event::{ConnectionEventKind, ProxyAgent};
use dat_core::flags::{
    CloseFlags, CompletionFlags, CrFields, DtoStatus, EpCreator, EvdFields, EvdFlags, HandleKind,
    IaFields, MemoryPrivileges, MemoryTypes, OPTIMAL_ALIGNMENT, ProviderFields, PspFlags,
};
use dat_core::id::{EvdId, Handle, PzId};
use dat_core::memory::{LmrMemory, LmrRequest, Region, RmrTriplet};
use dat_core::{Error, ErrorKind, Result, Subtype};

use crate::fixture::errors::BAD_PZ;
use crate::fixture::{
    FaultyTestbed, Memory, Net, Party, PartyOptions, Testbed, granted, open, refused,
    srq_attributes,
};

/// Several open adapters have their own handles and asynchronous dispatchers.
///
/// Spec: IAO-01, IAO-02, IAQ-02, GEN-11
pub fn adapters_have_their_own_handles<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let (one, two) = (net.adapter(), net.adapter());
    assert_ne!(one.handle(), two.handle());
    for ia in [&one, &two] {
        let param = granted(ia.ia_query(IaFields::empty(), ProviderFields::empty()));
        assert_eq!(param.async_evd, ia.async_evd());
        let evd = granted(ia.evd_query(ia.async_evd(), EvdFields::all()));
        assert_eq!(
            (evd.ia, evd.flags, evd.cno),
            (ia.handle(), EvdFlags::ASYNC, None)
        );
        assert!(evd.qlen >= 64);
        refused(ia.evd_dequeue(ia.async_evd()), Error::queue_empty());
    }
    let theirs = granted(two.pz_create());
    refused(one.pz_free(theirs), BAD_PZ);
    granted(two.pz_free(theirs));
}

/// The attributes follow the rules that the interface sets for every provider.
///
/// Spec: IAQ-01, IAQ-03..07, IAQ-09, IAQ-10, IAQ-12, GEN-08
pub fn adapter_attributes_follow_the_rules<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let param = granted(ia.ia_query(IaFields::all(), ProviderFields::all()));
    let (adapter, provider) = (param.ia, param.provider);
    for name in [
        adapter.adapter_name,
        adapter.vendor_name,
        provider.provider_name,
    ] {
        assert!(name.len() <= 255);
    }
    assert!(!adapter.adapter_name.is_empty());
    for limit in [
        adapter.max_eps,
        adapter.max_dto_per_ep,
        adapter.max_evds,
        adapter.max_evd_qlen,
        adapter.max_iov_segments_per_dto,
        adapter.max_lmrs,
        adapter.max_pzs,
        adapter.max_iov_segments_per_rdma_write,
    ] {
        assert!(limit > 0);
    }
    for limit in [
        adapter.max_rdma_read_per_ep_in,
        adapter.max_rdma_read_per_ep_out,
        adapter.max_rmrs,
        adapter.max_srqs,
        adapter.max_ep_per_srq,
        adapter.max_recv_per_srq,
        adapter.max_iov_segments_per_rdma_read,
        adapter.max_rdma_read_in,
        adapter.max_rdma_read_out,
    ] {
        assert!(limit >= 0);
    }
    assert!(adapter.max_lmr_block_size > 0 && adapter.max_message_size > 0);
    assert!(
        provider
            .lmr_mem_types_supported
            .contains(MemoryTypes::all())
    );
    assert!(
        provider
            .completion_flags_supported
            .contains(CompletionFlags::MANDATORY)
    );
    assert!(provider.max_private_data_size >= 64);
    assert_eq!(OPTIMAL_ALIGNMENT % provider.optimal_buffer_alignment, 0);
    let matrix = provider.evd_stream_merging_supported;
    for (index, row) in matrix.iter().enumerate() {
        assert!(row[index], "the diagonal of the merging matrix");
        for (other, merges) in row.iter().enumerate() {
            assert_eq!(*merges, matrix[other][index], "symmetry");
        }
    }
    if adapter.max_srqs > 0 {
        assert!(provider.srq_supported);
    }
    refused(
        ia.ia_query(IaFields::from_bits_retain(1 << 35), ProviderFields::empty()),
        Error::invalid_argument(3),
    );
    refused(
        ia.ia_query(IaFields::empty(), ProviderFields::from_bits_retain(1 << 26)),
        Error::invalid_argument(5),
    );
}

/// Adapters that are open at the same time have the same attributes, the adapter's name included.
///
/// Devices of a network may differ in their addresses.
///
/// Spec: IAQ-03
pub fn attributes_are_the_same_for_every_open<T: Testbed>(bed: &T) {
    let net = Net::new(bed);
    let attributes = || {
        let ia = net.adapter();
        let attributes = granted(ia.ia_query(IaFields::all(), ProviderFields::empty())).ia;
        // An adapter in use answers as a new one.
        let _party = Party::<T>::new(&ia, &PartyOptions::default());
        assert_eq!(
            granted(ia.ia_query(IaFields::all(), ProviderFields::empty())).ia,
            attributes
        );
        attributes
    };
    let (first, second) = (attributes(), attributes());
    assert_eq!(
        IaAttributes {
            ia_address: first.ia_address,
            ..second
        },
        first
    );
}

/// The attribute `ep_creator` says which kinds of service points the provider offers.
///
/// Others are refused. Only requests at a point of kind Provider bring an endpoint.
///
/// Spec: IAQ-08, PSC-04, RSC-02
pub fn requests_bring_endpoints_as_ep_creator_says<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let provider = granted(left.ia.ia_query(IaFields::empty(), ProviderFields::all())).provider;
    let may_consumer = provider.ep_creator != EpCreator::Always;
    let may_provider = provider.ep_creator != EpCreator::Never;
    let requests = granted(left.ia.evd_create(8, None, EvdFlags::CR));
    for (flags, is_offered) in [
        (PspFlags::Consumer, may_consumer),
        (PspFlags::Provider, may_provider),
    ] {
        if flags == PspFlags::Provider {
            let point = left.ia.rsp_create(net.qualifier(), None, requests);
            if is_offered {
                granted(left.ia.rsp_free(granted(point)));
            } else {
                refused(point.map(drop), Error::model_not_supported());
            }
        }
        let qualifier = net.qualifier();
        let point = left.ia.psp_create(qualifier, requests, flags);
        if !is_offered {
            refused(point.map(drop), Error::model_not_supported());
            continue;
        }
        let point = granted(point);
        let caller = Party::new(&right.ia, &PartyOptions::default());
        granted(net.try_connect(&caller, &left.ia, qualifier, &[]));
        let cr = net.request(&left.ia, requests);
        let brought = granted(left.ia.cr_query(cr, CrFields::all())).local_ep;
        assert_eq!(brought.is_some(), flags == PspFlags::Provider);
        granted(left.ia.cr_reject(cr, &[]));
        granted(left.ia.psp_free(point));
    }
}

/// Every object but a window has a kind and one context word until freed.
///
/// Spec: CTX-01..04, HTY-01, GEN-03
pub fn every_object_keeps_a_context<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::unconnected(bed);
    let ia = &left.ia;
    let requests = granted(ia.evd_create(8, None, EvdFlags::CR));
    let qualifier = net.qualifier();
    let psp = granted(ia.psp_create(qualifier, requests, PspFlags::Consumer));
    granted(net.try_connect(&right, ia, qualifier, &[]));
    let cr = net.request(ia, requests);
    let spare = Party::<T>::new(ia, &PartyOptions::default());
    let rsp = granted(ia.rsp_create(net.qualifier(), Some(spare.ep), requests));
    let srq = granted(ia.srq_create(left.zone, &srq_attributes(1, 1, 0)));
    let cno = granted(ia.cno_create(None));
    let objects = [
        (ia.handle(), HandleKind::Ia),
        (left.ep.handle(), HandleKind::Ep),
        (left.request.handle(), HandleKind::Evd),
        (cr.handle(), HandleKind::Cr),
        (rsp.handle(), HandleKind::Rsp),
        (psp.handle(), HandleKind::Psp),
        (left.zone.handle(), HandleKind::Pz),
        (left.memory.lmr.handle(), HandleKind::Lmr),
        (cno.handle(), HandleKind::Cno),
        (srq.handle(), HandleKind::Srq),
    ];
    for (index, (handle, kind)) in objects.into_iter().enumerate() {
        assert_eq!(granted(ia.get_handle_type(handle)), kind);
        assert_eq!(granted(ia.get_consumer_context(handle)), 0, "{kind:?}");
        granted(ia.set_consumer_context(handle, u64::MAX - index as u64));
    }
    for (index, (handle, kind)) in objects.into_iter().enumerate() {
        let context = granted(ia.get_consumer_context(handle));
        assert_eq!(context, u64::MAX - index as u64, "{kind:?}");
        granted(ia.set_consumer_context(handle, 0));
        assert_eq!(granted(ia.get_consumer_context(handle)), 0, "{kind:?}");
    }
    granted(ia.cno_free(cno));
    granted(ia.srq_free(srq));
    granted(ia.psp_free(psp));
    granted(ia.rsp_free(rsp));
    granted(ia.cr_reject(cr, &[]));
    granted(ia.lmr_free(left.memory.lmr));
    granted(ia.ep_free(left.ep));
    let freed = [
        cno.handle(),
        srq.handle(),
        psp.handle(),
        rsp.handle(),
        cr.handle(),
        left.memory.lmr.handle(),
        left.ep.handle(),
        Handle::NULL,
        Handle::from_raw(u64::MAX),
        right.ep.handle(),
        right.ia.handle(),
    ];
    for handle in freed {
        let outcomes = [
            ia.get_handle_type(handle).map(drop),
            ia.get_consumer_context(handle).map(drop),
            ia.set_consumer_context(handle, 1),
        ];
        for outcome in outcomes {
            let error = outcome.expect_err("a dead handle");
            assert_eq!(
                error.kind(),
                ErrorKind::InvalidHandle,
                "{handle:?}: {error}"
            );
        }
    }
    // A new object in the slot of an old one does not inherit its context.
    let again = granted(ia.cno_create(None));
    assert_eq!(granted(ia.get_consumer_context(again.handle())), 0);
}

/// A window has a kind and keeps one context word until it is freed.
///
/// The next window in its slot has none.
///
/// Spec: CTX-01, CTX-02, CTX-04, HTY-01, GEN-03
pub fn a_window_keeps_a_context<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let rmr = granted(ia.rmr_create(zone));
    assert_eq!(granted(ia.get_handle_type(rmr.handle())), HandleKind::Rmr);
    assert_eq!(granted(ia.get_consumer_context(rmr.handle())), 0);
    granted(ia.set_consumer_context(rmr.handle(), u64::MAX));
    assert_eq!(granted(ia.get_consumer_context(rmr.handle())), u64::MAX);
    granted(ia.rmr_free(rmr));
    let outcomes = [
        ia.get_handle_type(rmr.handle()).map(drop),
        ia.get_consumer_context(rmr.handle()).map(drop),
        ia.set_consumer_context(rmr.handle(), 1),
    ];
    for outcome in outcomes {
        let error = outcome.expect_err("a dead handle");
        assert_eq!(error.kind(), ErrorKind::InvalidHandle, "{error}");
    }
    let again = granted(ia.rmr_create(zone));
    assert_eq!(granted(ia.get_consumer_context(again.handle())), 0);
}

/// A graceful close is refused while the consumer has objects, and names them.
///
/// It destroys nothing. Afterwards it succeeds.
///
/// Spec: IAC-03, IAC-04, IAC-06, GEN-15
pub fn graceful_close_needs_an_empty_adapter<T: Testbed>(bed: &T) {
    type Undo<'u, T> = Box<dyn FnMut(&crate::fixture::Adapter<T>) + 'u>;
    let net = Net::new(bed);
    let in_use = Error::invalid_state(Subtype::InvalidStateIaInUse);
    let mut ia = open::<T>(bed.device());
    let zone = granted(ia.pz_create());
    let memory = Memory::register(&ia, zone, 64, MemoryPrivileges::ALL);
    let cno = granted(ia.cno_create(None));
    let evd = granted(ia.evd_create(8, Some(cno), EvdFlags::all()));
    let ep = granted(ia.ep_create(Some(zone), Some(evd), Some(evd), Some(evd), None));
    let psp = granted(ia.psp_create(net.qualifier(), evd, PspFlags::Consumer));
    let mut undo: [Undo<'_, T>; 6] = [
        Box::new(|ia| granted(ia.psp_free(psp))),
        Box::new(|ia| granted(ia.ep_free(ep))),
        Box::new(|ia| granted(ia.evd_free(evd))),
        Box::new(|ia| granted(ia.cno_free(cno))),
        Box::new(|ia| granted(ia.lmr_free(memory.lmr))),
        Box::new(|ia| granted(ia.pz_free(zone))),
    ];
    let kinds = [
        "public service point",
        "endpoint",
        "event dispatcher",
        "notification object",
        "local memory region",
        "protection zone",
    ];
    for (freed, free) in undo.iter_mut().enumerate() {
        let refusal = match ia.close(CloseFlags::Graceful) {
            Ok(_) => panic!("closed with objects left"),
            Err(refusal) => refusal,
        };
        assert!(refusal.error.same_code(in_use), "{}", refusal.error);
        let text = refusal.to_string();
        for (index, kind) in kinds.iter().enumerate() {
            let named = text.contains(&format!("1 {kind}"));
            assert_eq!(named, index >= freed, "{kind} in: {text}");
        }
        ia = refusal.ia;
        free(&ia);
    }
    drop(undo);
    assert!(ia.close(CloseFlags::Graceful).is_ok());
}

/// A graceful close is refused while a window exists, and names it.
///
/// The window stays.
///
/// Spec: IAC-03, IAC-04, IAC-06, GEN-15
pub fn graceful_close_needs_every_window_freed<T: Testbed>(bed: &T) {
    let ia = open::<T>(bed.device());
    let zone = granted(ia.pz_create());
    let rmr = granted(ia.rmr_create(zone));
    let Err(refusal) = ia.close(CloseFlags::Graceful) else {
        panic!("closed with a window left");
    };
    let in_use = Error::invalid_state(Subtype::InvalidStateIaInUse);
    assert!(refusal.error.same_code(in_use), "{}", refusal.error);
    let text = refusal.to_string();
    assert!(text.contains("1 remote memory region"), "{text}");
    let ia = refusal.ia;
    granted(ia.rmr_free(rmr));
    granted(ia.pz_free(zone));
    assert!(ia.close(CloseFlags::Graceful).is_ok());
}

/// An abrupt close destroys all objects.
///
/// The peers' connections end, agents are called without a dispatcher, memory is free again, and
/// the device can be opened again.
///
/// Spec: IAC-01, IAC-02, IAC-04, IAC-05, CNW-05, EPD-10
pub fn abrupt_close_destroys_everything<T: Testbed>(bed: &T) {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    fn called(data: u64, evd: Option<EvdId>) {
        assert!(evd.is_none());
        SEEN.store(data, Ordering::Relaxed);
    }
    let (net, left, right) = Net::connected(bed);
    let requests = granted(left.ia.evd_create(8, None, EvdFlags::CR));
    let qualifier = net.qualifier();
    granted(left.ia.psp_create(qualifier, requests, PspFlags::Provider));
    let caller = Party::new(&right.ia, &PartyOptions::default());
    granted(net.try_connect(&caller, &left.ia, qualifier, &[]));
    let _request = net.request(&left.ia, requests);
    let agent = ProxyAgent {
        function: called,
        instance_data: 77,
    };
    let cno = granted(left.ia.cno_create(Some(agent)));
    granted(left.ia.evd_create(8, Some(cno), EvdFlags::SOFTWARE));
    right.receive_into(&[], 9);
    let Party { ia, .. } = left;
    let device = net
        .release(ia)
        .close(CloseFlags::Abrupt)
        .unwrap_or_else(|refusal| panic!("{}", refusal.error));
    assert_eq!(SEEN.load(Ordering::Relaxed), 77);
    assert_eq!(net.connection(&right), ConnectionEventKind::Disconnected);
    assert_eq!(net.receive_completion(&right).status, DtoStatus::Flushed);
    net.run_to_idle();
    assert!(caller.state() != dat_core::flags::EndpointState::Connected);
    let again = net.adapter_over(device);
    let party = Party::new(&again, &PartyOptions::default());
    granted(right.ia.ep_reset(right.ep));
    net.connect(&right, &party);
    net.check_transfer(&right, &party);
}

/// An abrupt close ends a bound window.
///
/// Its context opens nothing over a new connection to the same device and memory.
///
/// Spec: IAC-01, IAC-05, RMF-02
pub fn abrupt_close_ends_windows<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let rmr = granted(left.ia.rmr_create(left.zone));
    let segment = left.memory.segment(0, 64);
    let (privileges, none) = (MemoryPrivileges::REMOTE_WRITE, CompletionFlags::empty());
    let context = left.bind(rmr, &segment, privileges, 1, none);
    assert_eq!(net.bound(&left).status, DtoStatus::Success);
    let memory = left.memory;
    let Party { ia, .. } = left;
    let device = net
        .release(ia)
        .close(CloseFlags::Abrupt)
        .unwrap_or_else(|refusal| panic!("{}", refusal.error));
    assert_eq!(net.connection(&right), ConnectionEventKind::Disconnected);
    let again = net.adapter_over(device);
    let party = Party::new(&again, &PartyOptions::default());
    Memory::register_block(&again, party.zone, memory.block(), MemoryPrivileges::ALL);
    granted(right.ia.ep_reset(right.ep));
    net.connect(&right, &party);
    right.memory.fill(1);
    let before = memory.content();
    let remote = RmrTriplet {
        context,
        address: segment.address,
        length: 8,
    };
    let from = [right.memory.segment(0, 8)];
    right.write(&from, 2, &remote, none);
    let status = net.request_completion(&right).status;
    assert_eq!(status, DtoStatus::RemoteAccess);
    assert_eq!(memory.content(), before);
}

/// Dropping an adapter closes it abruptly.
///
/// Spec: IAC-01, IAC-05
pub fn dropped_adapter_is_closed<T: Testbed>(bed: &T) {
    let (net, left, right) = Net::connected(bed);
    let Party { ia, .. } = left;
    drop(net.release(ia));
    assert_eq!(net.connection(&right), ConnectionEventKind::Disconnected);
}

/// A bad length of the asynchronous queue is refused and returns the device.
///
/// Spec: IAO-06, GEN-05, GEN-07
pub fn bad_async_queue_returns_the_device<T: Testbed>(bed: &T) {
    let device = bed.device();
    let storage = crate::fixture::storage;
    let mut device = Some(device);
    for length in [0, -1, i32::MIN] {
        let taken = device.take().expect("the device");
        let refusal = match dat_core::Ia::<'_, T::Backend, T::Lock>::open(taken, storage(), length)
        {
            Ok(_) => panic!("opened with a queue of {length}"),
            Err(refusal) => refusal,
        };
        assert_eq!(refusal.error.kind(), ErrorKind::InvalidParameter);
        device = Some(refusal.backend);
    }
    let ia = open::<T>(device.expect("the device"));
    granted(ia.pz_create());
}

/// Makes an object.
type Make<T> = Box<dyn Fn(&crate::fixture::Adapter<T>) -> Result<Handle>>;
/// Frees an object.
type Free<T> = Box<dyn Fn(&crate::fixture::Adapter<T>, Handle)>;

/// Makes objects until none is left, and frees them all.
fn is_finite<T: Testbed>(ia: &crate::fixture::Adapter<T>, make: &Make<T>, free: &Free<T>) {
    let mut made = Vec::new();
    let error = loop {
        match make(ia) {
            Ok(handle) => made.push(handle),
            Err(error) => break error,
        }
        assert!(made.len() < 100_000, "no end of objects");
    };
    assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
    let freed = made.swap_remove(made.len() / 2);
    free(ia, freed);
    let again = granted(make(ia));
    assert_ne!(again, freed, "a handle comes back to life");
    assert!(make(ia).is_err());
    free(ia, again);
    for handle in made {
        free(ia, handle);
    }
}

/// Exhausted storage or device refuses windows; a freed window makes room for one.
///
/// The error is INSUFFICIENT_RESOURCES.
///
/// Spec: GEN-06, RMC-01
pub fn windows_are_finite<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let make: Make<T> = Box::new(move |ia| Ok(ia.rmr_create(zone)?.handle()));
    let free: Free<T> = Box::new(|ia, handle| {
        granted(ia.rmr_free(dat_core::id::RmrId::from_handle(handle)));
    });
    is_finite::<T>(&ia, &make, &free);
}

/// Exhausted storage or device refuses objects; a freed object makes room for one.
///
/// The error is INSUFFICIENT_RESOURCES.
///
/// Spec: GEN-06, PZC-01, CNC-03, EVC-04, LMC-10, EPC-08, PSC-04
pub fn objects_are_finite<T: Testbed>(bed: &T) {
    let (_net, ia) = Net::with_adapter(bed);
    let zone = granted(ia.pz_create());
    let block = Memory::allocate(8);
    let cr = granted(ia.evd_create(8, None, EvdFlags::CR));
    let dto = granted(ia.evd_create(8, None, EvdFlags::DTO));
    let connect = granted(ia.evd_create(8, None, EvdFlags::CONNECTION));
    let kinds: [(Make<T>, Free<T>); 5] = [
        (
            Box::new(|ia| Ok(ia.pz_create()?.handle())),
            Box::new(|ia, handle| granted(ia.pz_free(PzId::from_handle(handle)))),
        ),
        (
            Box::new(|ia| Ok(ia.cno_create(None)?.handle())),
            Box::new(|ia, handle| {
                granted(ia.cno_free(dat_core::id::CnoId::from_handle(handle)));
            }),
        ),
        (
            Box::new(|ia| Ok(ia.evd_create(1, None, EvdFlags::SOFTWARE)?.handle())),
            Box::new(|ia, handle| granted(ia.evd_free(EvdId::from_handle(handle)))),
        ),
        (
            Box::new(move |ia| {
                let made = ia.lmr_create(&LmrRequest {
                    memory: LmrMemory::Virtual(Region::from_static(block)),
                    pz: zone,
                    privileges: MemoryPrivileges::ALL,
                })?;
                Ok(made.lmr.handle())
            }),
            Box::new(|ia, handle| {
                granted(ia.lmr_free(dat_core::id::LmrId::from_handle(handle)));
            }),
        ),
        (
            Box::new(move |ia| {
                Ok(ia
                    .ep_create(Some(zone), Some(dto), Some(dto), Some(connect), None)?
                    .handle())
            }),
            Box::new(|ia, handle| {
                granted(ia.ep_free(dat_core::id::EpId::from_handle(handle)));
            }),
        ),
    ];
    for (make, free) in &kinds {
        is_finite::<T>(&ia, make, free);
    }
    granted(ia.evd_free(cr));
}

/// A control call that finds no resources has no effect and succeeds the next time.
///
/// The failure is injected at each call in turn. A call that needs no resources does not fail.
///
/// Spec: GEN-02, GEN-06, IAC-03
pub fn refused_allocations_leave_nothing_behind<T: FaultyTestbed>(bed: &T) {
    for nth in 0..40 {
        let number = nth as u16;
        let device = bed.device();
        bed.fail_allocation(number, nth);
        let ia = match dat_core::Ia::<'_, T::Backend, T::Lock>::open(
            device,
            crate::fixture::storage(),
            8,
        ) {
            Ok(ia) => ia,
            Err(refusal) => {
                assert_eq!(refusal.error.kind(), ErrorKind::InsufficientResources);
                open::<T>(refusal.backend)
            }
        };
        let mut refusals = 0;
        macro_rules! retried {
            ($call:expr) => {
                match $call {
                    Ok(made) => made,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
                        refusals += 1;
                        granted($call)
                    }
                }
            };
        }
        let zone = retried!(ia.pz_create());
        let block = Memory::allocate(64);
        let region = retried!(ia.lmr_create(&LmrRequest {
            memory: LmrMemory::Virtual(Region::from_static(block)),
            pz: zone,
            privileges: MemoryPrivileges::ALL,
        }));
        let streams = EvdFlags::DTO | EvdFlags::RMR_BIND;
        let dto = retried!(ia.evd_create(8, None, streams));
        let events = retried!(ia.evd_create(8, None, EvdFlags::CONNECTION | EvdFlags::CR));
        let shape = srq_attributes(4, 1, 0);
        let srq = retried!(ia.srq_create(zone, &shape));
        retried!(ia.srq_resize(srq, 8));
        let wanted = PartyOptions::default().attributes;
        let (d, e) = (Some(dto), Some(events));
        let ep = retried!(ia.ep_create(Some(zone), d, d, e, Some(&wanted)));
        let shared = retried!(ia.ep_create_with_srq(Some(zone), d, d, e, srq, &wanted));
        retried!(ia.evd_resize(dto, 200));
        let qualifier = 5_000 + u64::from(nth);
        let psp = retried!(ia.psp_create(qualifier, events, PspFlags::Consumer));
        let rsp = retried!(ia.rsp_create(qualifier + 1_000, Some(ep), events));
        assert!(refusals <= 1);
        granted(ia.rsp_free(rsp));
        granted(ia.psp_free(psp));
        granted(ia.ep_free(ep));
        granted(ia.ep_free(shared));
        granted(ia.srq_free(srq));
        granted(ia.lmr_free(region.lmr));
        granted(ia.evd_free(dto));
        granted(ia.evd_free(events));
        granted(ia.pz_free(zone));
        assert!(ia.close(CloseFlags::Graceful).is_ok());
    }
}

/// A window that finds no resources leaves nothing; the next one is made.
///
/// Spec: GEN-02, GEN-06, RMC-01, IAC-03
pub fn refused_windows_leave_nothing_behind<T: FaultyTestbed>(bed: &T) {
    let mut refusals = 0;
    for nth in 0..8 {
        let device = bed.device();
        let ia = open::<T>(device);
        let zone = granted(ia.pz_create());
        bed.fail_allocation(nth as u16, nth);
        let rmr = ia.rmr_create(zone).unwrap_or_else(|error| {
            assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
            refusals += 1;
            granted(ia.rmr_create(zone))
        });
        granted(ia.rmr_free(rmr));
        granted(ia.pz_free(zone));
        assert!(ia.close(CloseFlags::Graceful).is_ok());
    }
    assert!(refusals > 0, "no window was refused");
}

/// A post that the device refuses returns INSUFFICIENT_RESOURCES.
///
/// It raises no event and takes no room in the queue.
///
/// Spec: DTO-07, EPW-26, RMB-34, SRQR-26, GEN-06
pub fn refused_posts_leave_nothing_behind<T: FaultyTestbed>(bed: &T) {
    let net = Net::new(bed);
    let (left, right) = net.pair(&PartyOptions::with(|wanted| {
        wanted.max_request_dtos = 3;
    }));
    let rmr = granted(left.ia.rmr_create(left.zone));
    let memory = left.more_memory(64, MemoryPrivileges::ALL);
    let segment = [memory.segment(0, 8)];
    let remote = right.memory.remote(0, 8);
    let flags = CompletionFlags::empty();
    let (ia, ep) = (&left.ia, left.ep);
    let post = |kind: u32, cookie| match kind {
        0 => ia.post_send(ep, &segment, cookie, flags),
        1 => ia.post_rdma_write(ep, &segment, cookie, &remote, flags),
        2 => ia.post_rdma_read(ep, &segment, cookie, &remote, flags),
        3 => ia
            .rmr_bind(
                rmr,
                &segment[0],
                MemoryPrivileges::REMOTE_READ,
                ep,
                cookie,
                flags,
            )
            .map(drop),
        _ => ia.post_recv(ep, &segment, cookie, flags),
    };
    for nth in 0..5 {
        bed.refuse_post(0, nth);
    }
    for kind in 0..5 {
        let error = post(kind, 1).expect_err("the device refuses");
        assert_eq!(error.kind(), ErrorKind::InsufficientResources, "{error}");
    }
    net.quiet(&left);
    let status = left.status();
    assert!(status.recv_idle && status.request_idle);
    // The refused bind does not hold the region.
    granted(ia.lmr_free(memory.lmr));
    assert_eq!(net.request_room(&left), 3);
    net.check_transfer(&left, &right);
}
