//! Pointers of C programs.
//!
//! They are null, or point to what the manual says for the duration of a call: the functions here
//! rely on it.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use dat_core::memory::Region;

/// A structure of C that is made of numbers and pointers, so that zeros are a value of it.
pub(crate) trait Plain: Sized {}

macro_rules! plain {
    ($($name:ident),* $(,)?) => {
        $(impl Plain for crate::layout::$name {})*
    };
}

plain! {
    ibv_ah, ibv_ah_attr, ibv_async_event, ibv_comp_channel, ibv_context, ibv_cq_ex, ibv_device,
    ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_port_attr, ibv_qp_attr, ibv_qp_ex,
    ibv_qp_init_attr, ibv_srq, ibv_wc, rdma_addrinfo, rdma_cm_event, rdma_cm_id, rdma_conn_param,
    verbs_context,
}

/// Returns a value of zeros.
pub(crate) fn zeroed<T: Plain>() -> T {
    // SAFETY: zeros are a value of the type.
    unsafe { core::mem::zeroed() }
}

/// Returns what a pointer of the program points to; `None` if it is null.
pub(crate) fn get<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the pointer is null or valid, as the manual demands.
    unsafe { pointer.as_ref() }
}

/// As [`get`], to change it.
pub(crate) fn get_mut<'a, T>(pointer: *mut T) -> Option<&'a mut T> {
    // SAFETY: the pointer is null or valid, and the program does not use it meanwhile.
    unsafe { pointer.as_mut() }
}

/// Stores a value where the program wants it; returns false if it wants none.
pub(crate) fn put<T>(place: *mut T, value: T) -> bool {
    if !place.is_null() {
        // SAFETY: the pointer is not null, so it is valid. What was there has nothing to drop.
        unsafe { place.write(value) };
    }
    !place.is_null()
}

/// Stores the first `length` bytes of a structure.
pub(crate) fn put_part<T: Plain>(place: *mut T, value: &T, length: usize) -> bool {
    if !place.is_null() {
        let length = length.min(size_of::<T>());
        // SAFETY: the pointer is not null, so `length` bytes are valid there.
        unsafe {
            core::ptr::copy_nonoverlapping((&raw const *value).cast::<u8>(), place.cast(), length);
        }
    }
    !place.is_null()
}

/// Returns `count` values.
pub(crate) fn list<'a, T>(first: *const T, count: usize) -> &'a [T] {
    if first.is_null() || count == 0 {
        return &[];
    }
    // SAFETY: the pointer is not null, so that `count` values are valid there.
    unsafe { core::slice::from_raw_parts(first, count) }
}

/// Returns bytes of the program by their address.
pub(crate) fn bytes<'a>(address: u64, length: usize) -> &'a [u8] {
    list(core::ptr::with_exposed_provenance(address as usize), length)
}

/// Returns bytes of the program that a call fills.
pub(crate) fn bytes_mut<'a>(first: *mut c_char, count: usize) -> &'a mut [u8] {
    if first.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: the pointer is not null, so that `count` bytes are the call's.
    unsafe { core::slice::from_raw_parts_mut(first.cast(), count) }
}

/// Returns a text of the program; `None` if the pointer is null.
pub(crate) fn text<'a>(text: *const c_char) -> Option<&'a CStr> {
    // SAFETY: the pointer is not null, so it points to a text that ends with zero.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) })
}

/// Moves a value to the heap and hands it to the program.
pub(crate) fn give<T>(value: Box<T>) -> *mut T {
    Box::into_raw(value)
}

/// Takes a value back that [`give`] has handed out, and that nobody has taken back.
pub(crate) fn take<T>(pointer: *mut T) -> Box<T> {
    // SAFETY: the caller has looked it up: `give` has handed it out, and it was not taken back.
    unsafe { Box::from_raw(pointer) }
}

/// Changes a structure that the program reads.
pub(crate) fn with<T, R>(cell: &UnsafeCell<T>, change: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: the program serialises its changes of an object, as the manual demands.
    change(unsafe { &mut *cell.get() })
}

/// Returns the memory that a region covers.
pub(crate) fn region(address: *mut c_void, length: usize) -> Region {
    // SAFETY: the program keeps registered memory until it deregisters it.
    unsafe { Region::from_raw_parts(address.cast(), length) }
}

/// Returns true if all pages of a range are mapped.
pub(crate) fn is_mapped(address: *mut c_void, length: usize) -> bool {
    const PAGES: usize = 4096;
    let mut present = [0u8; PAGES];
    // SAFETY: a number of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = usize::try_from(page).unwrap_or(4096).max(1);
    let Some(end) = (address as usize).checked_add(length) else {
        return false;
    };
    let mut start = address as usize / page * page;
    while start < end {
        let part = (end - start).min(PAGES * page);
        let first: *mut c_void = core::ptr::with_exposed_provenance_mut(start);
        // SAFETY: the call reads no memory of the range; it has a byte for each of its pages.
        let known = unsafe { libc::mincore(first, part, present.as_mut_ptr().cast()) };
        if known != 0 {
            return false;
        }
        start += part;
    }
    true
}

/// Sets the error number of the thread.
pub(crate) fn set_errno(code: c_int) {
    // SAFETY: the place of the thread's error number.
    unsafe { *libc::__errno_location() = code };
}

/// Returns null with an error number.
pub(crate) fn fail<T>(code: c_int) -> *mut T {
    set_errno(code);
    core::ptr::null_mut()
}

/// Returns -1 with an error number.
pub(crate) fn fails(code: c_int) -> c_int {
    set_errno(code);
    -1
}

/// Returns the object, or null with the error number.
pub(crate) fn pointer<T>(made: Result<*mut T, c_int>) -> *mut T {
    made.unwrap_or_else(fail)
}

/// Returns 0 or the error number.
pub(crate) fn code(done: Result<(), c_int>) -> c_int {
    done.err().unwrap_or(0)
}

/// Makes a descriptor that counts.
pub(crate) fn counter() -> Result<c_int, c_int> {
    // SAFETY: a call without pointers.
    let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
    if fd < 0 { Err(errno()) } else { Ok(fd) }
}

/// Adds 1 to such a descriptor.
pub(crate) fn count_up(fd: c_int) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: 8 bytes are valid. The number never comes near the limit, so this does not wait.
    unsafe { libc::write(fd, one.as_ptr().cast(), one.len()) };
}

/// Takes 1 from such a descriptor, and waits for it unless the program has made it not to.
pub(crate) fn count_down(fd: c_int) -> Result<(), c_int> {
    let mut number = [0u8; 8];
    // SAFETY: 8 bytes are valid.
    let length = unsafe { libc::read(fd, number.as_mut_ptr().cast(), number.len()) };
    if length == 8 { Ok(()) } else { Err(errno()) }
}

/// Takes 1 from such a descriptor if it has any.
pub(crate) fn count_back(fd: c_int) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry is valid.
    if unsafe { libc::poll(&raw mut poll, 1, 0) } == 1 {
        let _ = count_down(fd);
    }
}

/// Closes a descriptor.
pub(crate) fn close(fd: c_int) {
    // SAFETY: the descriptor belongs to an object that is gone.
    unsafe { libc::close(fd) };
}

/// Lets other threads run.
pub(crate) fn give_way() {
    // SAFETY: a call without pointers.
    unsafe { libc::sched_yield() };
}

fn errno() -> c_int {
    std::io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// A lock that one call of the program takes and another one gives back.
pub(crate) struct HeldLock(UnsafeCell<libc::pthread_mutex_t>);

impl HeldLock {
    pub(crate) const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    pub(crate) fn lock(&self) {
        // SAFETY: the lock stays where it is as long as its object.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    pub(crate) fn unlock(&self) {
        // SAFETY: as above; the calling thread holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

// SAFETY: a lock of the system is for several threads.
unsafe impl Send for HeldLock {}
// SAFETY: as above.
unsafe impl Sync for HeldLock {}

/// The part of an object that the program knows: it lies first.
#[repr(transparent)]
pub(crate) struct Shared<T>(pub(crate) UnsafeCell<T>);

// SAFETY: the program serialises its changes of an object, as the manual demands. The pointers
// inside are the program's, or to objects that the program keeps longer.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

/// Returns the address and the key of an RDMA request.
pub(crate) fn rdma(request: &crate::layout::ibv_send_wr) -> (u64, u32) {
    // SAFETY: the opcode says that this field is the one in use; all are numbers.
    let rdma = unsafe { request.wr.rdma };
    (rdma.remote_addr, rdma.rkey)
}

/// Returns the address, the key and both operands of an atomic request.
pub(crate) fn atomic(request: &crate::layout::ibv_send_wr) -> (u64, u32, u64, u64) {
    // SAFETY: the opcode says that this field is the one in use; all are numbers.
    let atomic = unsafe { request.wr.atomic };
    (
        atomic.remote_addr,
        atomic.rkey,
        atomic.compare_add,
        atomic.swap,
    )
}

/// Returns the address handle, the QPN and the key of the receiver of a datagram.
pub(crate) fn datagram(
    request: &crate::layout::ibv_send_wr,
) -> (*mut crate::layout::ibv_ah, u32, u32) {
    // SAFETY: the type of the queue pair says that this field is in use; its fields are numbers,
    // and a pointer.
    let datagram = unsafe { request.wr.ud };
    (datagram.ah, datagram.remote_qpn, datagram.remote_qkey)
}

/// Returns the immediate data of a request, in the order of the wire.
pub(crate) fn immediate(request: &crate::layout::ibv_send_wr) -> u32 {
    // SAFETY: both fields are numbers of 4 bytes.
    unsafe { request.__bindgen_anon_1.imm_data }
}

/// Returns the bytes of a GID.
pub(crate) fn gid_bytes(gid: crate::layout::ibv_gid) -> [u8; 16] {
    // SAFETY: all fields are 16 bytes.
    unsafe { gid.raw }
}

/// Returns true if an asynchronous event is of a shared receive queue.
pub(crate) fn names_shared_queue(
    event: &crate::layout::ibv_async_event,
    queue: *mut crate::layout::ibv_srq,
) -> bool {
    // SAFETY: the kind of the event says which field is in use; each is a pointer or a number.
    event.event_type == crate::layout::IBV_EVENT_SRQ_LIMIT_REACHED
        && unsafe { event.element.srq } == queue
}

/// Returns true if an asynchronous event is of a queue pair.
pub(crate) fn names_pair(
    event: &crate::layout::ibv_async_event,
    pair: *mut crate::layout::ibv_qp,
) -> bool {
    use crate::layout::{IBV_EVENT_QP_ACCESS_ERR, IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR};

    let kinds = [
        IBV_EVENT_QP_FATAL,
        IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR,
    ];
    // SAFETY: the kind of the event says which field is in use; each is a pointer or a number.
    kinds.contains(&event.event_type) && unsafe { event.element.qp } == pair
}

/// Returns the error number of this thread.
pub(crate) fn last_error() -> c_int {
    errno()
}

/// Returns a socket address as C has it.
pub(crate) fn storage(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: zeros are a value of it.
    let mut storage: libc::sockaddr_storage = unsafe { core::mem::zeroed() };
    let place = &raw mut storage;
    match address {
        SocketAddr::V4(address) => {
            let of_family = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.ip().octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger, and aligned for each family.
            unsafe { place.cast::<libc::sockaddr_in>().write(of_family) };
        }
        SocketAddr::V6(address) => {
            let of_family = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr {
                    s6_addr: address.ip().octets(),
                },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(of_family) };
        }
    }
    storage
}

/// Returns a socket address of the program; `None` for null, or another family.
pub(crate) fn socket_address(address: *const libc::sockaddr) -> Option<SocketAddr> {
    match c_int::from(get(address)?.sa_family) {
        libc::AF_INET => {
            let address = get(address.cast::<libc::sockaddr_in>())?;
            let ip = Ipv4Addr::from(address.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddr::new(ip.into(), u16::from_be(address.sin_port)))
        }
        libc::AF_INET6 => {
            let address = get(address.cast::<libc::sockaddr_in6>())?;
            let (ip, port) = (address.sin6_addr.s6_addr, u16::from_be(address.sin6_port));
            let ip = Ipv6Addr::from(ip);
            Some(match ip.to_ipv4_mapped() {
                Some(ip) => SocketAddr::new(ip.into(), port),
                None => SocketAddrV6::new(ip, port, 0, address.sin6_scope_id).into(),
            })
        }
        _ => None,
    }
}

/// Returns the address of this side of an id, if it has one.
pub(crate) fn own_address(id: &crate::layout::rdma_cm_id) -> Option<SocketAddr> {
    socket_address((&raw const id.route.addr.__bindgen_anon_1).cast())
}

/// Returns the address of the peer of an id, if it has one.
pub(crate) fn peer_address(id: &crate::layout::rdma_cm_id) -> Option<SocketAddr> {
    socket_address((&raw const id.route.addr.__bindgen_anon_2).cast())
}

/// Looks up an address by name.
pub(crate) fn look_up(
    node: *const c_char,
    service: *const c_char,
    family: c_int,
    (is_passive, is_number): (bool, bool),
) -> Result<SocketAddr, c_int> {
    // SAFETY: zeros are a value of it.
    let mut wanted: libc::addrinfo = unsafe { core::mem::zeroed() };
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    wanted.ai_flags = flag(is_passive, libc::AI_PASSIVE) | flag(is_number, libc::AI_NUMERICHOST);
    wanted.ai_family = family;
    wanted.ai_socktype = libc::SOCK_STREAM;
    let mut found = core::ptr::null_mut();
    // SAFETY: names are null or texts.
    let code = unsafe { libc::getaddrinfo(node, service, &raw const wanted, &raw mut found) };
    if code != 0 {
        return Err(code);
    }
    let address = get(found).and_then(|found| socket_address(found.ai_addr));
    // SAFETY: the list of the call above.
    unsafe { libc::freeaddrinfo(found) };
    address.ok_or(libc::EAI_FAMILY)
}
