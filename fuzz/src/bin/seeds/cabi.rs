//! Seeds of `cabi`, `cabi2` and `cabi_rsm`: calls that a program would make, and every call with
//! zeros only.

use dat_fuzz::cabi::{CALL_SIZE, rsm, v1, v2};

use super::Seed;

/// Arguments: null, and the first handle of a run.
///
/// A handle is 128 plus its index. The first four handles of a run are two adapters and their
/// dispatchers.
const NULL: u8 = 0;
const FIRST: u8 = 128;

/// The bytes of an address argument: a block that is not null, IPv4, 127.0.0.1.
const TO_ITSELF: [u8; 3] = [1, 0, 1];
/// A list of segments: a block that is not null, and six words.
const SEGMENT_OF_ZEROS: [u8; 7] = [0; 7];
/// The first words of the attributes of a shared queue: eight buffers of one segment.
const EIGHT_OF_ONE_SEGMENT: [u8; 9] = [232, 8, 0, 0, 0, 1, 0, 0, 0];
/// Rights and numbers that take more than a byte.
const READ_AND_WRITE: [u8; 3] = [192, 1, 0x80];
const PAGE: [u8; 3] = [192, 0x10, 0];
const FIRST_OF_USERS: u8 = 225;
/// About half an hour, in microseconds.
const LONG: u8 = 216;

/// Operations of `DAT_IB_OP`.
const FETCH_AND_ADD: u8 = 0;
const COMPARE_AND_SWAP: u8 = 1;
const WRITE_IMMEDIATE: u8 = 2;

/// For RSM, the controller is the first handle of a run.
const CONTROLLER: u8 = 128;
const SEGMENT: u8 = CONTROLLER + 1;
const IMPORT: u8 = CONTROLLER + 2;

/// The bytes of an argument.
trait Argument {
    fn put(self, call: &mut Vec<u8>);
}

impl Argument for u8 {
    fn put(self, call: &mut Vec<u8>) {
        call.push(self);
    }
}

impl<const N: usize> Argument for [u8; N] {
    fn put(self, call: &mut Vec<u8>) {
        call.extend(self);
    }
}

/// The name of a call, and the bytes of its arguments.
type Call = (&'static str, Vec<u8>);

/// Scenarios: a name, and calls.
macro_rules! calls {
    ($($name:literal => $($call:ident($($argument:expr),*)),*;)*) => {
        vec![$(($name, vec![$({
            let mut arguments = Vec::new();
            $(Argument::put($argument, &mut arguments);)*
            (stringify!($call), arguments)
        }),*])),*]
    };
}

/// A scenario: its name, and its calls.
type Scenario = (&'static str, Vec<Call>);

/// Returns the scenarios, and every call with zeros only, among these names of calls.
fn seeds(scenarios: Vec<Scenario>, names: &[&'static str]) -> Vec<Seed> {
    let seed = |(name, calls): Scenario| {
        let mut input = Vec::new();
        for (call, arguments) in calls {
            let end = input.len() + CALL_SIZE;
            let number = names.iter().position(|name| *name == call);
            input.push(number.expect("a call") as u8);
            input.extend(arguments);
            input.resize(end, 0);
        }
        (name.into(), input)
    };
    // An input has room for half of the calls.
    let (first, other) = names.split_at(names.len().div_ceil(2));
    let with_zeros = |name, calls: &[&'static str]| {
        (name, calls.iter().map(|call| (*call, Vec::new())).collect())
    };
    let every = [
        with_zeros("every-call", first),
        with_zeros("every-other-call", other),
    ];
    scenarios.into_iter().chain(every).map(seed).collect()
}

pub(crate) fn seeds_of_1_2() -> Vec<Seed> {
    let scenarios = calls! {
        "objects" => dat_pz_create(FIRST), dat_cno_create(FIRST, 1),
            dat_evd_create(FIRST, 8, NULL, 0x71), dat_pz_query(FIRST + 4, 7),
            dat_pz_free(FIRST + 4), dat_pz_free(FIRST + 4);
        "endpoint" => dat_pz_create(FIRST), dat_evd_create(FIRST, 8, NULL, 0x60),
            dat_ep_create(FIRST, FIRST + 4, FIRST + 5, FIRST + 5, FIRST + 5, 0xFF),
            dat_ep_post_recv(FIRST + 6, 0, 0xFF), dat_ep_query(FIRST + 6, 127),
            dat_ep_free(FIRST + 6);
        "regions" => dat_pz_create(FIRST), dat_lmr_create(FIRST, 0, 1, 100, FIRST + 4, 0x33),
            dat_lmr_create(FIRST, 1, 1, FIRST + 5, 100, FIRST + 4, 3), dat_rmr_create(FIRST + 4),
            dat_lmr_query(FIRST + 5, 127), dat_lmr_free(FIRST + 5);
        "of-the-other-adapter" => dat_pz_create(FIRST), dat_evd_create(FIRST + 2, 8, NULL, 0x71),
            dat_srq_create(FIRST + 2, FIRST + 4, 1, 8, 2), dat_psp_create(FIRST, 9, FIRST + 5, 1);
        "closed" => dat_pz_create(FIRST), dat_ia_close(FIRST, 0), dat_pz_free(FIRST + 4),
            dat_evd_wait(FIRST + 1, 1, 1);
        "waits" => dat_cno_create(FIRST, 0), dat_cno_wait(FIRST + 4, 1),
            dat_evd_wait(FIRST + 1, 1, 1), dat_evd_dequeue(FIRST + 1),
            dat_evd_create(FIRST, 8, NULL, 0x20), dat_evd_dequeue(FIRST + 5);
    };
    seeds(scenarios, &v1::names())
}

pub(crate) fn seeds_of_2_0() -> Vec<Seed> {
    let connected = calls! {
        "" => dat_pz_create(FIRST), dat_evd_create(FIRST, 32, NULL, 0x71),
            dat_evd_create(FIRST, 32, NULL, 192, 0, 0xA0),
            dat_ep_create(FIRST, FIRST + 4, FIRST + 6, FIRST + 6, FIRST + 5, 0xFF),
            dat_ep_create(FIRST, FIRST + 4, FIRST + 6, FIRST + 6, FIRST + 5, 0xFF),
            dat_psp_create(FIRST, 9, FIRST + 5, 0),
            dat_ep_connect(FIRST + 7, TO_ITSELF, 9, LONG, 3, 1, 5, 5, 0, 0),
            dat_evd_wait(FIRST + 5, 50, 1), dat_evd_wait(FIRST + 5, 50, 1),
            dat_evd_wait(FIRST + 5, 50, 1), dat_cr_query(FIRST + 10, 15),
            dat_cr_accept(FIRST + 10, FIRST + 8, 3, 1, 5, 5), dat_evd_wait(FIRST + 5, 50, 1),
            dat_evd_wait(FIRST + 5, 50, 1);
    };
    let (_, connected) = &connected[0];
    let mut on_a_connection = calls! {
        "connected" => dat_ep_post_send(FIRST + 7, 0, 0xFF, 7, 0),
            dat_ep_post_recv(FIRST + 8, 0, 0xFF, 7, 0), dat_evd_wait(FIRST + 6, 50, 1),
            dat_evd_wait(FIRST + 6, 50, 1), dat_ep_post_recv(FIRST + 8, 0, 0xFF, 8, 0),
            dat_extension_op(FIRST + 7, WRITE_IMMEDIATE, 0xFF, 1, 0, 0, 0, 77, 9, 0),
            dat_evd_wait(FIRST + 6, 50, 1), dat_evd_wait(FIRST + 6, 50, 1),
            dat_extension_op(FIRST + 7, FETCH_AND_ADD, 1, 0, 8, 0, 0, 0, 0, 1, 8, 8, 3, 0, 10),
            dat_extension_op(FIRST + 7, COMPARE_AND_SWAP, 1, 0, 8, 0, 0, 0, 0, 1, 8, 8, 3, 4, 11),
            dat_extension_op(FIRST + 7, 5), dat_ep_modify(FIRST + 7, 128, 1, FIRST + 4),
            dat_ep_disconnect(FIRST + 7, 0), dat_ep_reset(FIRST + 7), dat_ep_free(FIRST + 8);
        // Segments of no region: a post of one segment begins at its object, and ends there.
        "one-segment" => dat_evd_dequeue(FIRST + 6), dat_ep_post_recv(FIRST + 8, 1, SEGMENT_OF_ZEROS, 7),
            dat_ep_post_send(FIRST + 7, 1, SEGMENT_OF_ZEROS, 7),
            dat_ep_post_rdma_write(FIRST + 7, 1, SEGMENT_OF_ZEROS, 7, NULL, 8, 8),
            dat_ep_post_rdma_read(FIRST + 7, 1, SEGMENT_OF_ZEROS, 7, NULL, 8, 8),
            dat_srq_create(FIRST, FIRST + 4, NULL, EIGHT_OF_ONE_SEGMENT),
            dat_srq_post_recv(FIRST + 13, 1, SEGMENT_OF_ZEROS, 7),
            dat_ep_post_send(FIRST + 7, 0, 0xFF, 7, 0), dat_ep_post_recv(FIRST + 8, 0, 0xFF, 7, 0),
            dat_evd_dequeue(FIRST + 6), dat_evd_dequeue(FIRST + 6), dat_evd_dequeue(FIRST + 6),
            dat_evd_dequeue(FIRST + 6), dat_ep_free(FIRST + 7), dat_evd_free(FIRST + 6);
    };
    for (_, calls) in &mut on_a_connection {
        calls.splice(..0, connected.iter().cloned());
    }
    let mut scenarios = calls! {
        "objects" => dat_pz_create(FIRST), dat_cno_create(FIRST, 1),
            dat_evd_create(FIRST, 8, NULL, 0x71), dat_pz_query(FIRST + 4, 7),
            dat_get_handle_type(FIRST + 6), dat_pz_free(FIRST + 4), dat_pz_free(FIRST + 4);
        "opened-again" => dat_ia_openv(0, 1, 8, 1, FIRST + 1, 1, 2, 0, 1),
            dat_ia_openv(0, 1, 8, 1, FIRST + 2, 1, 2, 0, 1), dats_get_ia_handle(FIRST + 4),
            dat_ia_query(FIRST + 4, 1, 127, 1, 127), dat_ia_close(FIRST + 4, 1);
        "regions" => dat_pz_create(FIRST), dat_lmr_create(FIRST, 0, 1, 100, FIRST + 4, 0x33, 0),
            dat_lmr_create(FIRST, 1, 1, FIRST + 5, 100, FIRST + 4, 3, 0), dat_rmr_create(FIRST + 4),
            dat_lmr_query(FIRST + 5, 127), dat_lmr_free(FIRST + 5);
        "of-the-other-adapter" => dat_pz_create(FIRST), dat_evd_create(FIRST + 2, 8, NULL, 0x71),
            dat_srq_create(FIRST + 2, FIRST + 4, 1, 8, 2), dat_psp_create(FIRST, 9, FIRST + 5, 0);
        "closed" => dat_pz_create(FIRST), dat_ia_close(FIRST, 0), dat_pz_free(FIRST + 4),
            dat_evd_wait(FIRST + 1, 1, 1);
    };
    scenarios.extend(on_a_connection);
    seeds(scenarios, &v2::names())
}

pub(crate) fn seeds_of_rsm() -> Vec<Seed> {
    let connected = calls! {
        "" => rsm_memseg_export_create(CONTROLLER, 1, 0, PAGE, 1),
            rsm_memseg_export_publish(SEGMENT, 1, FIRST_OF_USERS, 1, 0, READ_AND_WRITE, 0, 0, 1),
            rsm_memseg_import_connect(CONTROLLER, 1, FIRST_OF_USERS, READ_AND_WRITE, 1);
    };
    let (_, connected) = &connected[0];
    let mut scenarios = calls! {
        "moved" => rsm_memseg_import_set_mode(IMPORT, 0), rsm_memseg_import_put(IMPORT, 8, 9, 16),
            rsm_memseg_import_get64(IMPORT, 8, 9, 2), rsm_memseg_import_put8(IMPORT, 8, 9, 2),
            rsm_create_localmemory_handle(CONTROLLER, 1, 10, PAGE),
            rsm_memseg_import_putv(
                1, 2, 1, IMPORT + 1, 0, 0, 16, 2, 9, 8, 0, 16, 1, 0, 0, 0, IMPORT
            ),
            rsm_memseg_import_getv(1, 1, 1, IMPORT + 1, 0, 0, 16, 1, 0, 0, 0, IMPORT),
            rsm_free_localmemory_handle(CONTROLLER, IMPORT + 1),
            rsm_memseg_import_disconnect(IMPORT), rsm_memseg_export_destroy(SEGMENT);
        "signalled" => rsm_intr_signal_post(IMPORT, 0), rsm_intr_signal_wait(SEGMENT, 1),
            rsm_memseg_get_pollfd(SEGMENT, 1), rsm_intr_signal_wait_pollfd(1, 1, 1, 1, 1, 1),
            rsm_memseg_release_pollfd(SEGMENT), rsm_memseg_release_pollfd(SEGMENT);
        "mapped-and-barred" => rsm_memseg_import_map(IMPORT, 1, 0, READ_AND_WRITE, 0, PAGE),
            rsm_memseg_import_set_mode(IMPORT, 1), rsm_memseg_import_get_mode(IMPORT, 1),
            rsm_memseg_import_init_barrier(IMPORT, 2, 1),
            rsm_memseg_import_open_barrier(1, IMPORT, 1, IMPORT + 1),
            rsm_memseg_export_rebind(SEGMENT, 2, 0, PAGE), rsm_memseg_import_unmap(IMPORT);
        "withdrawn" => rsm_memseg_export_republish(SEGMENT, 1, 0, 0, 0, 0, 1),
            rsm_memseg_export_unpublish(SEGMENT), rsm_memseg_import_put(IMPORT, 8, 9, 16),
            rsm_get_interconnect_topology(1), rsm_free_interconnect_topology(CONTROLLER + 3),
            rsm_get_segmentid_range(0, 1, 1, 1);
    };
    for (_, calls) in &mut scenarios {
        calls.splice(..0, connected.iter().cloned());
    }
    scenarios.extend(calls! {
        "released" => rsm_get_controller(0, 1, 1), rsm_get_controller_attr(CONTROLLER, 1),
            rsm_memseg_export_create(CONTROLLER, 1, 0, PAGE, 1), rsm_release_controller(CONTROLLER),
            rsm_release_controller(CONTROLLER), rsm_release_controller(CONTROLLER),
            rsm_memseg_export_destroy(CONTROLLER + 2);
    });
    seeds(scenarios, &rsm::names())
}
