//! The calls of the core that this crate makes, without the type of the backend.

use std::any::Any;
use std::task::Waker;

use dat_core::attributes::{EpAttributes, IaAttributes, SrqAttributes};
use dat_core::backend::Backend;
use dat_core::connection::CrParam;
use dat_core::endpoint::{BatchRefused, BatchRequest, ConnectParam};
use dat_core::event::Event;
use dat_core::flags::{
    CloseFlags, CompletionFlags, CrFields, EvdFlags, IaFields, MemoryPrivileges, ProviderFields,
    PspFlags,
};
use dat_core::id::{CnoId, CrId, EpId, EvdId, LmrId, PspId, PzId, RmrId, SrqId};
use dat_core::memory::{LmrCreated, LmrRequest, LmrTriplet, RmrTriplet};
use dat_core::sync::HostLock;
use dat_core::time::Instant;
use dat_core::{Cause, Error, IaParam, Result, Subtype};
use dat_storage::OwnedIa;

/// The adapter of a parent in a child of `fork`: it refuses each call, and takes no lock.
pub(crate) struct Inherited;

impl Inherited {
    /// The error of each call.
    pub(crate) const fn error() -> Error {
        Error::invalid_handle(Subtype::InvalidHandleIa).because(Cause::Closing)
    }
}

/// The result of a call that [`Inherited`] refuses.
trait Refusal {
    fn refusal() -> Self;
}

impl<T> Refusal for Result<T> {
    fn refusal() -> Self {
        Err(Inherited::error())
    }
}

impl Refusal for std::result::Result<(), BatchRefused> {
    fn refusal() -> Self {
        let (posted, error) = (0, Inherited::error());
        Err(BatchRefused { posted, error })
    }
}

/// Implements [`Refusal`] for results that are no errors.
macro_rules! refusal {
    ($($result:ty: $value:expr;)*) => {$(
        impl Refusal for $result {
            fn refusal() -> Self {
                $value
            }
        }
    )*};
}

refusal! {
    (): ();
    usize: 0;
    Option<Instant>: None;
    dat_core::id::Handle: dat_core::id::Handle::NULL;
    EvdId: EvdId::NULL;
}

/// Declares [`Interface`], and implements it for the adapters of all backends.
macro_rules! interface {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// An open adapter of any backend; each call is that of [`dat_core::Ia`].
        pub(crate) trait Interface: Any + Send + Sync {
            $(fn $name(&self, $($argument: $type),*) $(-> $result)?;)*

            /// Closes the adapter and drops the backend.
            fn shut(&self);

            /// Returns true if `progress` has nothing to do at any time but that of a deadline.
            ///
            /// `None` if the backend cannot tell, or needs the time. For a thread that sleeps in
            /// the device's own sleeper, which marks what it finds.
            fn is_quiet(&self) -> Option<bool>;

            /// Returns the attributes of adapter and provider.
            fn query(&self) -> Result<IaParam>;

            /// Returns the attributes of the adapter only.
            fn limits(&self) -> Result<IaAttributes> {
                self.query().map(|param| param.ia)
            }
        }

        impl<B: Backend + 'static> Interface for OwnedIa<B, HostLock>
        where
            Self: Send + Sync,
        {
            $(
                #[inline]
                fn $name(&self, $($argument: $type),*) $(-> $result)? {
                    dat_core::Ia::$name(self, $($argument),*)
                }
            )*

            fn shut(&self) {
                // Fails only if the adapter is closed already.
                drop(dat_core::Ia::shut(self, CloseFlags::Abrupt));
            }

            fn is_quiet(&self) -> Option<bool> {
                B::EVENT_DRIVEN.then(|| dat_core::Ia::is_quiet(self))
            }

            fn query(&self) -> Result<IaParam> {
                self.ia_query(IaFields::empty(), ProviderFields::empty())
            }
        }

        impl Interface for Inherited {
            $(
                fn $name(&self, $(_: $type),*) $(-> $result)? {
                    Refusal::refusal()
                }
            )*

            fn shut(&self) {}

            fn is_quiet(&self) -> Option<bool> {
                Some(true)
            }

            fn query(&self) -> Result<IaParam> {
                Refusal::refusal()
            }
        }
    };
}

interface! {
    fn pz_create() -> Result<PzId>;
    fn pz_free(pz: PzId) -> Result<()>;
    fn lmr_create(request: &LmrRequest) -> Result<LmrCreated>;
    fn lmr_free(lmr: LmrId) -> Result<()>;
    fn lmr_sync_rdma_read(segments: &[LmrTriplet]) -> Result<()>;
    fn lmr_sync_rdma_write(segments: &[LmrTriplet]) -> Result<()>;
    fn rmr_create(pz: PzId) -> Result<RmrId>;
    fn rmr_free(rmr: RmrId) -> Result<()>;
    fn rmr_bind(
        rmr: RmrId,
        segment: &LmrTriplet,
        privileges: MemoryPrivileges,
        ep: EpId,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32>;
    fn cno_create(agent: Option<dat_core::event::ProxyAgent>) -> Result<CnoId>;
    fn evd_create(min_qlen: i32, cno: Option<CnoId>, flags: EvdFlags) -> Result<EvdId>;
    fn evd_modify_cno(evd: EvdId, cno: Option<CnoId>) -> Result<()>;
    fn evd_resize(evd: EvdId, min_qlen: i32) -> Result<()>;
    fn evd_free(evd: EvdId) -> Result<()>;
    fn evd_dequeue(evd: EvdId) -> Result<Event>;
    fn handle() -> dat_core::id::Handle;
    fn async_evd() -> EvdId;
    fn ep_create(
        pz: Option<PzId>,
        receive: Option<EvdId>,
        request: Option<EvdId>,
        connect: Option<EvdId>,
        attributes: Option<&EpAttributes>,
    ) -> Result<EpId>;
    fn ep_create_with_srq(
        pz: Option<PzId>,
        receive: Option<EvdId>,
        request: Option<EvdId>,
        connect: Option<EvdId>,
        srq: SrqId,
        attributes: &EpAttributes,
    ) -> Result<EpId>;
    fn ep_free(ep: EpId) -> Result<()>;
    fn ep_connect(ep: EpId, param: &ConnectParam<'_>, now: Instant) -> Result<()>;
    fn ep_disconnect(ep: EpId, flags: CloseFlags) -> Result<()>;
    fn ep_private_data(ep: EpId, into: &mut [u8]) -> Result<usize>;
    fn post_send(
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()>;
    fn post_recv(
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()>;
    fn post_rdma_write(
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()>;
    fn post_rdma_read(
        ep: EpId,
        segments: &[LmrTriplet],
        cookie: u64,
        remote: &RmrTriplet,
        flags: CompletionFlags,
    ) -> Result<()>;
    fn post_batch(
        ep: EpId,
        requests: &[BatchRequest<'_>],
    ) -> std::result::Result<(), BatchRefused>;
    fn srq_create(pz: PzId, attributes: &SrqAttributes) -> Result<SrqId>;
    fn srq_free(srq: SrqId) -> Result<()>;
    fn srq_post_recv(srq: SrqId, segments: &[LmrTriplet], cookie: u64) -> Result<()>;
    fn psp_create(qualifier: u64, evd: EvdId, flags: PspFlags) -> Result<PspId>;
    fn psp_create_any(evd: EvdId, flags: PspFlags) -> Result<(PspId, u64)>;
    fn psp_free(psp: PspId) -> Result<()>;
    fn cr_query(cr: CrId, fields: CrFields) -> Result<CrParam>;
    fn cr_is_proven(cr: CrId) -> Result<bool>;
    fn cr_accept(cr: CrId, ep: Option<EpId>, private_data: &[u8]) -> Result<()>;
    fn cr_reject(cr: CrId, private_data: &[u8]) -> Result<()>;
    fn progress(now: Instant) -> usize;
    fn next_deadline() -> Option<Instant>;
    fn register_progress_waker(waker: &Waker);
}
