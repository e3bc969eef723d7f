//! The list of the calls of DAT, of both editions: the only one.
//!
//! It makes the functions of [`v1`](crate::v1) and of [`redirection`](crate::redirection), the
//! table of the provider for 2.0, and the exports of both libraries. It also makes parts of the
//! headers, which a test of this crate compares and writes.

/// Passes the list of all calls to a macro, after what is given with its name.
///
/// - `calls`: those that a provider's table has in both editions. An entry has name and arguments;
///   after `/`, the arguments of 2.0 where they differ; `gone` if success ends the first object;
///   the slot in the table; and the function in this library. Functions of `forms` differ between
///   the editions. Those of `by_backend` do between the backends; the others have the edition as a
///   parameter.
/// - `later`: those of 2.0 only. `table`: those that are called by the table only.
/// - `registry`: those that no provider gets, with the function of DAT 1.2.
///
/// Arguments have their names in the headers. Types are those of the headers too: `EvdFlags` is
/// `DAT_EVD_FLAGS`. Handles say what the registry does with them, as in `redirection::arguments`.
#[macro_export]
macro_rules! calls_of_dat {
    ($with:ident $($given:tt)*) => {
        $with! {
            $($given)*
            calls {
            dat_ia_query(ia_handle: Ia, async_evd_handle: Out<EvdHandle>, ia_attr_mask: IaAttrMask, ia_attributes: Out<IaAttributes>, provider_attr_mask: ProviderAttrMask, provider_attributes: Out<ProviderAttributes>) 1 = ia::query;
            dat_set_consumer_context(dat_handle: Any, context: Context) 3 = context::set;
            dat_get_consumer_context(dat_handle: Any, context: Out<Context>) 4 = context::get;
            dat_get_handle_type(dat_handle: Any, handle_type: Out<HandleType>) 5 = context::kind;
            dat_cno_create(ia_handle: Ia, agent: OsWaitProxyAgent, cno_handle: Made<Cno>) 6 = cno::create;
            dat_cno_modify_agent(cno_handle: Object<Cno>, agent: OsWaitProxyAgent) 7 = cno::modify_agent;
            dat_cno_query(cno_handle: Object<Cno>, cno_param_mask: CnoParamMask, cno_param: Out<CnoParam>) 8 = cno::query;
            dat_cno_free(cno_handle: Object<Cno>) gone 9 = cno::free;
            dat_cno_wait(cno_handle: Object<Cno>, timeout: Timeout, evd_handle: Out<EvdHandle>) 10 = cno::wait;
            dat_cr_query(cr_handle: Object<Cr>, cr_param_mask: CrParamMask, cr_param: RequestOut) 11 = cr::query;
            dat_cr_accept(cr_handle: Object<Cr>, ep_handle: Maybe<Ep>, private_data_size: Count, private_data: PrivateData) gone 12 = cr::accept;
            dat_cr_reject(cr_handle: Object<Cr>) / (cr_handle: Object<Cr>, private_data_size: Count, private_data: PrivateData) gone 13 = forms::cr_reject;
            dat_cr_handoff(cr_handle: Object<Cr>, handoff: ConnQual) gone 14 = cr::handoff;
            dat_evd_create(ia_handle: Ia, evd_min_qlen: Count, cno_handle: Maybe<Cno>, evd_flags: EvdFlags, evd_handle: Made<Evd>) 15 = evd::create;
            dat_evd_query(evd_handle: Object<Evd>, evd_param_mask: EvdParamMask, evd_param: Out<EvdParam>) 16 = evd::query;
            dat_evd_modify_cno(evd_handle: Object<Evd>, cno_handle: Maybe<Cno>) 17 = evd::modify_cno;
            dat_evd_enable(evd_handle: Object<Evd>) 18 = evd::enable;
            dat_evd_disable(evd_handle: Object<Evd>) 19 = evd::disable;
            dat_evd_wait(evd_handle: Object<Evd>, timeout: Timeout, threshold: Count, event: EventOut, nmore: Out<Count>) 20 = evd::wait;
            dat_evd_resize(evd_handle: Object<Evd>, evd_min_qlen: Count) 21 = evd::resize;
            dat_evd_post_se(evd_handle: Object<Evd>, event: In<Event>) 22 = evd::post_software_event;
            dat_evd_dequeue(evd_handle: Object<Evd>, event: EventOut) 23 = by_backend::dequeue;
            dat_evd_free(evd_handle: Object<Evd>) gone 24 = evd::free;
            dat_ep_create(ia_handle: Ia, pz_handle: Maybe<Pz>, recv_evd_handle: Maybe<ReceiveEvd>, request_evd_handle: Maybe<RequestEvd>, connect_evd_handle: Maybe<ConnectionEvd>, ep_attributes: In<EpAttributes>, ep_handle: Made<Ep>) 25 = ep::create;
            dat_ep_query(ep_handle: Object<Ep>, ep_param_mask: EpParamMask, ep_param: Out<EpParam>) 26 = ep::query;
            dat_ep_modify(ep_handle: Object<Ep>, ep_param_mask: EpParamMask, ep_param: EndpointParam) 27 = ep::modify;
            dat_ep_connect(ep_handle: Object<Ep>, remote_ia_address: IaAddressPtr, remote_conn_qual: ConnQual, timeout: Timeout, private_data_size: Count, private_data: PrivateData, quality_of_service: Qos, connect_flags: ConnectFlags) 28 = connect::connect;
            dat_ep_dup_connect(ep_handle: Object<Ep>, dup_ep_handle: Object<Ep>, timeout: Timeout, private_data_size: Count, private_data: PrivateData, quality_of_service: Qos) 29 = connect::duplicate;
            dat_ep_disconnect(ep_handle: Object<Ep>, close_flags: CloseFlags) 30 = connect::disconnect;
            dat_ep_post_send(ep_handle: Object<Ep>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie, completion_flags: CompletionFlags) 31 = by_backend::send;
            dat_ep_post_recv(ep_handle: Object<Ep>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie, completion_flags: CompletionFlags) 32 = by_backend::receive;
            dat_ep_post_rdma_read(ep_handle: Object<Ep>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie, remote_buffer: In<RmrTriplet>, completion_flags: CompletionFlags) 33 = by_backend::rdma_read;
            dat_ep_post_rdma_write(ep_handle: Object<Ep>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie, remote_buffer: In<RmrTriplet>, completion_flags: CompletionFlags) 34 = by_backend::rdma_write;
            dat_ep_get_status(ep_handle: Object<Ep>, ep_state: Out<EpState>, recv_idle: Out<Boolean>, request_idle: Out<Boolean>) 35 = ep::get_status;
            dat_ep_free(ep_handle: Object<Ep>) gone 36 = ep::free;
            dat_lmr_create(ia_handle: Ia, mem_type: MemType, region_description: RegionDescription, length: Vlen, pz_handle: Object<Pz>, mem_privileges: MemPrivFlags, lmr_handle: Made<Lmr>, lmr_context: Out<LmrContext>, rmr_context: Out<RmrContext>, registered_size: Out<Vlen>, registered_address: Out<Vaddr>) / (ia_handle: Ia, mem_type: MemType, region_description: RegionDescription, length: Vlen, pz_handle: Object<Pz>, mem_privileges: MemPrivFlags, va_type: VaType, lmr_handle: Made<Lmr>, lmr_context: Out<LmrContext>, rmr_context: Out<RmrContext>, registered_size: Out<Vlen>, registered_address: Out<Vaddr>) 37 = forms::lmr_create;
            dat_lmr_query(lmr_handle: Object<Lmr>, lmr_param_mask: LmrParamMask, lmr_param: Out<LmrParam>) 38 = lmr::query;
            dat_lmr_free(lmr_handle: Object<Lmr>) gone 39 = lmr::free;
            dat_rmr_create(pz_handle: Object<Pz>, rmr_handle: Made<Rmr>) 40 = rmr::create;
            dat_rmr_query(rmr_handle: Object<Rmr>, rmr_param_mask: RmrParamMask, rmr_param: Out<RmrParam>) 41 = rmr::query;
            dat_rmr_bind(rmr_handle: Object<Rmr>, lmr_triplet: In<LmrTriplet>, mem_privileges: MemPrivFlags, ep_handle: Object<Ep>, user_cookie: RmrCookie, completion_flags: CompletionFlags, rmr_context: Out<RmrContext>) / (rmr_handle: Object<Rmr>, lmr_handle: Maybe<Lmr>, lmr_triplet: In<LmrTriplet>, mem_privileges: MemPrivFlags, va_type: VaType, ep_handle: Object<Ep>, user_cookie: RmrCookie, completion_flags: CompletionFlags, rmr_context: Out<RmrContext>) 42 = forms::rmr_bind;
            dat_rmr_free(rmr_handle: Object<Rmr>) gone 43 = rmr::free;
            dat_psp_create(ia_handle: Ia, conn_qual: ConnQual, evd_handle: Object<ArrivalEvd>, psp_flags: PspFlags, psp_handle: Made<Psp>) 44 = psp::create;
            dat_psp_query(psp_handle: Object<Psp>, psp_param_mask: PspParamMask, psp_param: Out<PspParam>) 45 = psp::query;
            dat_psp_free(psp_handle: Object<Psp>) gone 46 = psp::free;
            dat_rsp_create(ia_handle: Ia, conn_qual: ConnQual, ep_handle: Maybe<Ep>, evd_handle: Object<ArrivalEvd>, rsp_handle: Made<Rsp>) 47 = rsp::create;
            dat_rsp_query(rsp_handle: Object<Rsp>, rsp_param_mask: RspParamMask, rsp_param: Out<RspParam>) 48 = rsp::query;
            dat_rsp_free(rsp_handle: Object<Rsp>) gone 49 = rsp::free;
            dat_pz_create(ia_handle: Ia, pz_handle: Made<Pz>) 50 = pz::create;
            dat_pz_query(pz_handle: Object<Pz>, pz_param_mask: PzParamMask, pz_param: Out<PzParam>) 51 = pz::query;
            dat_pz_free(pz_handle: Object<Pz>) gone 52 = pz::free;
            dat_psp_create_any(ia_handle: Ia, conn_qual: Out<ConnQual>, evd_handle: Object<ArrivalEvd>, psp_flags: PspFlags, psp_handle: Made<Psp>) 53 = psp::create_any;
            dat_ep_reset(ep_handle: Object<Ep>) 54 = ep::reset;
            dat_evd_set_unwaitable(evd_handle: Object<Evd>) 55 = evd::set_unwaitable;
            dat_evd_clear_unwaitable(evd_handle: Object<Evd>) 56 = evd::clear_unwaitable;
            dat_lmr_sync_rdma_read(ia_handle: Ia, local_segments: ConstList<LmrTriplet>, num_segments: Vlen) 57 = post::synchronize_read;
            dat_lmr_sync_rdma_write(ia_handle: Ia, local_segments: ConstList<LmrTriplet>, num_segments: Vlen) 58 = post::synchronize_write;
            dat_ep_create_with_srq(ia_handle: Ia, pz_handle: Maybe<Pz>, recv_evd_handle: Maybe<ReceiveEvd>, request_evd_handle: Maybe<RequestEvd>, connect_evd_handle: Maybe<ConnectionEvd>, srq_handle: Object<Srq>, ep_attributes: In<EpAttributes>, ep_handle: Made<Ep>) 59 = ep::create_with_srq;
            dat_ep_recv_query(ep_handle: Object<Ep>, nbufs_allocated: Out<Count>, bufs_alloc_span: Out<Count>) 60 = ep::recv_query;
            dat_ep_set_watermark(ep_handle: Object<Ep>, soft_high_watermark: Count, hard_high_watermark: Count) 61 = ep::set_watermark;
            dat_srq_create(ia_handle: Ia, pz_handle: Object<Pz>, srq_attr: NonConst<SrqAttributes>, srq_handle: Made<Srq>) 62 = srq::create;
            dat_srq_free(srq_handle: Object<Srq>) gone 63 = srq::free;
            dat_srq_post_recv(srq_handle: Object<Srq>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie) 64 = by_backend::receive_shared;
            dat_srq_query(srq_handle: Object<Srq>, srq_param_mask: SrqParamMask, srq_param: Out<SrqParam>) 65 = srq::query;
            dat_srq_resize(srq_handle: Object<Srq>, srq_max_recv_dto: Count) 66 = srq::resize;
            dat_srq_set_lw(srq_handle: Object<Srq>, low_watermark: Count) 67 = srq::set_low_watermark;
            }
            later {
            dat_csp_create(ia_handle: Ia, comm: Out<Comm>, address: IaAddressPtr, evd_handle: Object<Evd>, csp_handle: Made<Csp>) 68 = unsupported::model_not_supported;
            dat_csp_query(csp_handle: Object<Csp>, csp_param_mask: CspParamMask, csp_param: Out<CspParam>) 69 = unsupported::model_not_supported;
            dat_csp_free(csp_handle: Object<Csp>) 70 = unsupported::model_not_supported;
            dat_ep_common_connect(ep_handle: Object<Ep>, remote_ia_address: IaAddressPtr, timeout: Timeout, private_data_size: Count, private_data: PrivateData) 71 = unsupported::model_not_supported;
            dat_rmr_create_for_ep(pz_handle: Object<Pz>, rmr_handle: Made<Rmr>) 72 = unsupported::model_not_supported;
            dat_ep_post_send_with_invalidate(ep_handle: Object<Ep>, num_segments: Count, local_iov: List<LmrTriplet>, user_cookie: DtoCookie, completion_flags: CompletionFlags, invalidate_flag: Boolean, rmr_context: RmrContext) 73 = unsupported::model_not_supported;
            dat_ep_post_rdma_read_to_rmr(ep_handle: Object<Ep>, local_iov: In<RmrTriplet>, user_cookie: DtoCookie, remote_buffer: In<RmrTriplet>, completion_flags: CompletionFlags) 74 = unsupported::model_not_supported;
            dat_cno_fd_create(ia_handle: Ia, file_descriptor: Out<Fd>, cno_handle: Made<Cno>) 75 = unsupported::not_implemented;
            dat_cno_trigger(cno_handle: Object<Cno>, evd_handle: Out<EvdHandle>) 76 = unsupported::not_implemented;
            }
            table {
            dat_ia_open(ia_name: Text, async_evd_min_qlen: Count, async_evd_handle: Out<EvdHandle>, ia_handle: Out<IaHandle>) 0 = forms::open;
            dat_ia_close(ia_handle: Ia, ia_flags: CloseFlags) 2 = ia::close;
            dat_ia_ha_related(ia_handle: Ia, provider: Text, answer: Out<Boolean>) 77 = forms::ha_related;
            dat_handle_extendedop(handle: Any, operation: ExtendedOp, arguments: VariableArguments) 78 = extension::operation;
            }
            registry {
            dat_ia_openv(ia_name: Text, async_evd_min_qlen: Count, async_evd_handle: Out<CHandle>, ia_handle: Out<CHandle>, dapl_major: u32, dapl_minor: u32, thread_safety: Boolean) = registry::open;
            dat_ia_close(ia_handle: CHandle, ia_flags: CloseFlags) = registry::close;
            dat_strerror(value: u32, major_message: Out<StaticText>, minor_message: Out<StaticText>) = text::of::<V1>;
            dat_registry_list_providers(max_to_return: Count, entries_returned: Out<Count>, dat_provider_list: List<Out<ProviderInfo>>) = registry::list;
            dat_registry_add_provider(provider: Option<Guest>, provider_info: In<ProviderInfo>) = registry::add;
            dat_registry_remove_provider(provider: Option<Guest>, provider_info: In<ProviderInfo>) = registry::remove;
            }
        }
    };
}

/// Types of the list that are the same in both editions.
pub(crate) mod types {
    pub(crate) use crate::boundary::{Agent as OsWaitProxyAgent, In, List, Out, RegionDescription};

    /// An input that the headers declare without `const`.
    pub(crate) type NonConst<T> = In<T>;
    /// A list that the headers declare with `const`.
    pub(crate) type ConstList<T> = List<T>;
    /// The handle of an event dispatcher, as a result.
    pub(crate) type EvdHandle = crate::handles::CHandle;

    macro_rules! numbers {
        ($($type:ident: $($name:ident)*;)*) => {
            $($(pub(crate) type $name = $type;)*)*
        };
    }

    numbers! {
        i32: Count;
        u32: Boolean CloseFlags CnoParamMask CompletionFlags ConnectFlags CrParamMask EpState EvdFlags EvdParamMask HandleType
            LmrContext LmrParamMask MemPrivFlags MemType PspFlags PspParamMask PzParamMask Qos RmrContext RmrParamMask
            RspParamMask SrqParamMask Timeout VaType;
        u64: ConnQual Context DtoCookie EpParamMask IaAttrMask ProviderAttrMask RmrCookie Vaddr Vlen;
    }
}
