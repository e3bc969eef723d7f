//! The list of the calls of DAT 1.2.

/// Passes the list of all calls to a macro.
///
/// Each entry has name and arguments. Entries of `providers` have the slot in a provider's table
/// and the function of this library. Entries of `registry` have the function of the registry.
#[macro_export]
macro_rules! calls_of_dat_1_2 {
    ($with:ident) => {
        $with! {
            providers {
            dat_ia_query(ia: CHandle, async_evd: Out<CHandle>, ia_mask: u64, ia_attributes: Out<IaAttributes>, provider_mask: u64, provider_attributes: Out<ProviderAttributes>) 1 = ia::query::<V1>;
            dat_set_consumer_context(handle: CHandle, context: u64) 3 = context::set::<V1>;
            dat_get_consumer_context(handle: CHandle, context: Out<u64>) 4 = context::get::<V1>;
            dat_get_handle_type(handle: CHandle, kind: Out<u32>) 5 = context::kind::<V1>;
            dat_cno_create(ia: CHandle, agent: Agent, cno: Out<CHandle>) 6 = cno::create::<V1>;
            dat_cno_modify_agent(cno: CHandle, agent: Agent) 7 = cno::modify_agent::<V1>;
            dat_cno_query(cno: CHandle, mask: u32, param: Out<CnoParam>) 8 = cno::query::<V1>;
            dat_cno_free(cno: CHandle) 9 = cno::free::<V1>;
            dat_cno_wait(cno: CHandle, timeout: u32, evd: Out<CHandle>) 10 = cno::wait::<V1>;
            dat_cr_query(cr: CHandle, mask: u32, param: Out<CrParam>) 11 = cr::query::<V1>;
            dat_cr_accept(cr: CHandle, ep: CHandle, private_data_size: i32, private_data: List<u8>) 12 = cr::accept::<V1>;
            dat_cr_reject(cr: CHandle) 13 = forms::cr_reject;
            dat_cr_handoff(cr: CHandle, qualifier: u64) 14 = cr::handoff::<V1>;
            dat_evd_create(ia: CHandle, min_qlen: i32, cno: CHandle, flags: u32, evd: Out<CHandle>) 15 = evd::create::<V1>;
            dat_evd_query(evd: CHandle, mask: u32, param: Out<EvdParam>) 16 = evd::query::<V1>;
            dat_evd_modify_cno(evd: CHandle, cno: CHandle) 17 = evd::modify_cno::<V1>;
            dat_evd_enable(evd: CHandle) 18 = evd::enable::<V1>;
            dat_evd_disable(evd: CHandle) 19 = evd::disable::<V1>;
            dat_evd_wait(evd: CHandle, timeout: u32, threshold: i32, event: Out<Event>, more: Out<i32>) 20 = evd::wait::<V1>;
            dat_evd_resize(evd: CHandle, min_qlen: i32) 21 = evd::resize::<V1>;
            dat_evd_post_se(evd: CHandle, event: In<Event>) 22 = evd::post_software_event::<V1>;
            dat_evd_dequeue(evd: CHandle, event: Out<Event>) 23 = by_backend::dequeue;
            dat_evd_free(evd: CHandle) 24 = evd::free::<V1>;
            dat_ep_create(ia: CHandle, pz: CHandle, receive: CHandle, request: CHandle, connect: CHandle, attributes: In<EpAttributes>, ep: Out<CHandle>) 25 = ep::create::<V1>;
            dat_ep_query(ep: CHandle, mask: u64, param: Out<EpParam>) 26 = ep::query::<V1>;
            dat_ep_modify(ep: CHandle, mask: u64, param: In<EpParam>) 27 = ep::modify::<V1>;
            dat_ep_connect(ep: CHandle, address: Address, qualifier: u64, timeout: u32, private_data_size: i32, private_data: List<u8>, quality: u32, flags: u32) 28 = connect::connect::<V1>;
            dat_ep_dup_connect(ep: CHandle, model: CHandle, timeout: u32, private_data_size: i32, private_data: List<u8>, quality: u32) 29 = connect::duplicate::<V1>;
            dat_ep_disconnect(ep: CHandle, flags: u32) 30 = connect::disconnect::<V1>;
            dat_ep_post_send(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, flags: u32) 31 = by_backend::send;
            dat_ep_post_recv(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, flags: u32) 32 = by_backend::receive;
            dat_ep_post_rdma_read(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, remote: In<LongTriplet>, flags: u32) 33 = by_backend::rdma_read;
            dat_ep_post_rdma_write(ep: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64, remote: In<LongTriplet>, flags: u32) 34 = by_backend::rdma_write;
            dat_ep_get_status(ep: CHandle, state: Out<u32>, recv_idle: Out<u32>, request_idle: Out<u32>) 35 = ep::get_status::<V1>;
            dat_ep_free(ep: CHandle) 36 = ep::free::<V1>;
            dat_lmr_create(ia: CHandle, memory_type: u32, description: RegionDescription, length: u64, pz: CHandle, privileges: u32, lmr: Out<CHandle>, lmr_context: Out<u32>, rmr_context: Out<u32>, registered_size: Out<u64>, registered_address: Out<u64>) 37 = forms::lmr_create;
            dat_lmr_query(lmr: CHandle, mask: u32, param: Out<LmrParam>) 38 = lmr::query::<V1>;
            dat_lmr_free(lmr: CHandle) 39 = lmr::free::<V1>;
            dat_rmr_create(pz: CHandle, rmr: Out<CHandle>) 40 = rmr::create::<V1>;
            dat_rmr_query(rmr: CHandle, mask: u32, param: Out<RmrParam>) 41 = rmr::query::<V1>;
            dat_rmr_bind(rmr: CHandle, segment: In<LongTriplet>, privileges: u32, ep: CHandle, cookie: u64, flags: u32, context: Out<u32>) 42 = forms::rmr_bind;
            dat_rmr_free(rmr: CHandle) 43 = rmr::free::<V1>;
            dat_psp_create(ia: CHandle, qualifier: u64, evd: CHandle, flags: u32, psp: Out<CHandle>) 44 = psp::create::<V1>;
            dat_psp_query(psp: CHandle, mask: u32, param: Out<PspParam>) 45 = psp::query::<V1>;
            dat_psp_free(psp: CHandle) 46 = psp::free::<V1>;
            dat_rsp_create(ia: CHandle, qualifier: u64, ep: CHandle, evd: CHandle, rsp: Out<CHandle>) 47 = rsp::create::<V1>;
            dat_rsp_query(rsp: CHandle, mask: u32, param: Out<RspParam>) 48 = rsp::query::<V1>;
            dat_rsp_free(rsp: CHandle) 49 = rsp::free::<V1>;
            dat_pz_create(ia: CHandle, pz: Out<CHandle>) 50 = pz::create::<V1>;
            dat_pz_query(pz: CHandle, mask: u32, param: Out<PzParam>) 51 = pz::query::<V1>;
            dat_pz_free(pz: CHandle) 52 = pz::free::<V1>;
            dat_psp_create_any(ia: CHandle, qualifier: Out<u64>, evd: CHandle, flags: u32, psp: Out<CHandle>) 53 = psp::create_any::<V1>;
            dat_ep_reset(ep: CHandle) 54 = ep::reset::<V1>;
            dat_evd_set_unwaitable(evd: CHandle) 55 = evd::set_unwaitable::<V1>;
            dat_evd_clear_unwaitable(evd: CHandle) 56 = evd::clear_unwaitable::<V1>;
            dat_lmr_sync_rdma_read(ia: CHandle, segments: List<LongTriplet>, count: u64) 57 = post::synchronize_read::<V1>;
            dat_lmr_sync_rdma_write(ia: CHandle, segments: List<LongTriplet>, count: u64) 58 = post::synchronize_write::<V1>;
            dat_ep_create_with_srq(ia: CHandle, pz: CHandle, receive: CHandle, request: CHandle, connect: CHandle, srq: CHandle, attributes: In<EpAttributes>, ep: Out<CHandle>) 59 = ep::create_with_srq::<V1>;
            dat_ep_recv_query(ep: CHandle, allocated: Out<i32>, span: Out<i32>) 60 = ep::recv_query::<V1>;
            dat_ep_set_watermark(ep: CHandle, soft: i32, hard: i32) 61 = ep::set_watermark::<V1>;
            dat_srq_create(ia: CHandle, pz: CHandle, attributes: In<SrqAttributes>, srq: Out<CHandle>) 62 = srq::create::<V1>;
            dat_srq_free(srq: CHandle) 63 = srq::free::<V1>;
            dat_srq_post_recv(srq: CHandle, count: i32, segments: List<LongTriplet>, cookie: u64) 64 = by_backend::receive_shared;
            dat_srq_query(srq: CHandle, mask: u32, param: Out<SrqParam>) 65 = srq::query::<V1>;
            dat_srq_resize(srq: CHandle, max_recv_dtos: i32) 66 = srq::resize::<V1>;
            dat_srq_set_lw(srq: CHandle, low_watermark: i32) 67 = srq::set_low_watermark::<V1>;
            }
            registry {
            dat_ia_openv(name: Text, async_evd_min_qlen: i32, async_evd: Out<CHandle>, ia: Out<CHandle>, major: u32, minor: u32, is_thread_safe: u32) = registry::open;
            dat_ia_close(ia: CHandle, flags: u32) = registry::close;
            dat_strerror(value: u32, major: Out<StaticText>, minor: Out<StaticText>) = text::of::<V1>;
            dat_registry_list_providers(most: i32, count: Out<i32>, outputs: List<Out<ProviderInfo>>) = registry::list;
            dat_registry_add_provider(provider: Option<Guest>, info: In<ProviderInfo>) = registry::add;
            dat_registry_remove_provider(provider: Option<Guest>, info: In<ProviderInfo>) = registry::remove;
            }
        }
    };
}
