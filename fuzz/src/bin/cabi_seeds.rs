//! Writes the seeds of the targets `cabi`, `cabi2` and `cabi_rsm`.
//!
//! The seeds are lists of calls that a program would make, and every call with zeros only.

use std::path::Path;

use dat_fuzz::cabi::{CALL_SIZE, rsm, v1, v2};

/// Arguments: null, and the first handle of a run.
///
/// A handle is 128 plus its index.
///
/// The first four handles of a run are two adapters and their dispatchers.
const NULL: u8 = 0;
const FIRST_IA: u8 = 128;

/// A name, and calls with the bytes of their arguments.
type Scenario = (&'static str, &'static [(&'static str, &'static [u8])]);

/// The bytes of an address argument: a block that is not null, IPv4, 127.0.0.1.
const TO_ITSELF: [u8; 3] = [1, 0, 1];
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

const OF_1_2: &[Scenario] = &[
    (
        "objects",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_cno_create", &[FIRST_IA, 1]),
            ("dat_evd_create", &[FIRST_IA, 8, NULL, 0x71]),
            ("dat_pz_query", &[FIRST_IA + 4, 7]),
            ("dat_pz_free", &[FIRST_IA + 4]),
            ("dat_pz_free", &[FIRST_IA + 4]),
        ],
    ),
    (
        "endpoint",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_evd_create", &[FIRST_IA, 8, NULL, 0x60]),
            (
                "dat_ep_create",
                &[
                    FIRST_IA,
                    FIRST_IA + 4,
                    FIRST_IA + 5,
                    FIRST_IA + 5,
                    FIRST_IA + 5,
                    0xFF,
                ],
            ),
            ("dat_ep_post_recv", &[FIRST_IA + 6, 0, 0xFF]),
            ("dat_ep_query", &[FIRST_IA + 6, 127]),
            ("dat_ep_free", &[FIRST_IA + 6]),
        ],
    ),
    (
        "regions",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_lmr_create", &[FIRST_IA, 0, 1, 100, FIRST_IA + 4, 0x33]),
            (
                "dat_lmr_create",
                &[FIRST_IA, 1, 1, FIRST_IA + 5, 100, FIRST_IA + 4, 3],
            ),
            ("dat_rmr_create", &[FIRST_IA + 4]),
            ("dat_lmr_query", &[FIRST_IA + 5, 127]),
            ("dat_lmr_free", &[FIRST_IA + 5]),
        ],
    ),
    (
        "of-the-other-adapter",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_evd_create", &[FIRST_IA + 2, 8, NULL, 0x71]),
            ("dat_srq_create", &[FIRST_IA + 2, FIRST_IA + 4, 1, 8, 2]),
            ("dat_psp_create", &[FIRST_IA, 9, FIRST_IA + 5, 1]),
        ],
    ),
    (
        "closed",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_ia_close", &[FIRST_IA, 0]),
            ("dat_pz_free", &[FIRST_IA + 4]),
            ("dat_evd_wait", &[FIRST_IA + 1, 1, 1]),
        ],
    ),
    (
        "waits",
        &[
            ("dat_cno_create", &[FIRST_IA, 0]),
            ("dat_cno_wait", &[FIRST_IA + 4, 1]),
            ("dat_evd_wait", &[FIRST_IA + 1, 1, 1]),
            ("dat_evd_dequeue", &[FIRST_IA + 1]),
            ("dat_evd_create", &[FIRST_IA, 8, NULL, 0x20]),
            ("dat_evd_dequeue", &[FIRST_IA + 5]),
        ],
    ),
];

const OF_2_0: &[Scenario] = &[
    (
        "objects",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_cno_create", &[FIRST_IA, 1]),
            ("dat_evd_create", &[FIRST_IA, 8, NULL, 0x71]),
            ("dat_pz_query", &[FIRST_IA + 4, 7]),
            ("dat_get_handle_type", &[FIRST_IA + 6]),
            ("dat_pz_free", &[FIRST_IA + 4]),
            ("dat_pz_free", &[FIRST_IA + 4]),
        ],
    ),
    (
        "opened-again",
        &[
            ("dat_ia_openv", &[0, 1, 8, 1, FIRST_IA + 1, 1, 2, 0, 1]),
            ("dat_ia_openv", &[0, 1, 8, 1, FIRST_IA + 2, 1, 2, 0, 1]),
            ("dats_get_ia_handle", &[FIRST_IA + 4]),
            ("dat_ia_query", &[FIRST_IA + 4, 1, 127, 1, 127]),
            ("dat_ia_close", &[FIRST_IA + 4, 1]),
        ],
    ),
    (
        "regions",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            (
                "dat_lmr_create",
                &[FIRST_IA, 0, 1, 100, FIRST_IA + 4, 0x33, 0],
            ),
            (
                "dat_lmr_create",
                &[FIRST_IA, 1, 1, FIRST_IA + 5, 100, FIRST_IA + 4, 3, 0],
            ),
            ("dat_rmr_create", &[FIRST_IA + 4]),
            ("dat_lmr_query", &[FIRST_IA + 5, 127]),
            ("dat_lmr_free", &[FIRST_IA + 5]),
        ],
    ),
    (
        "connected",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_evd_create", &[FIRST_IA, 32, NULL, 0x71]),
            ("dat_evd_create", &[FIRST_IA, 32, NULL, 192, 0, 0xA0]),
            (
                "dat_ep_create",
                &[
                    FIRST_IA,
                    FIRST_IA + 4,
                    FIRST_IA + 6,
                    FIRST_IA + 6,
                    FIRST_IA + 5,
                    0xFF,
                ],
            ),
            (
                "dat_ep_create",
                &[
                    FIRST_IA,
                    FIRST_IA + 4,
                    FIRST_IA + 6,
                    FIRST_IA + 6,
                    FIRST_IA + 5,
                    0xFF,
                ],
            ),
            ("dat_psp_create", &[FIRST_IA, 9, FIRST_IA + 5, 0]),
            (
                "dat_ep_connect",
                &[
                    FIRST_IA + 7,
                    TO_ITSELF[0],
                    TO_ITSELF[1],
                    TO_ITSELF[2],
                    9,
                    LONG,
                    3,
                    1,
                    5,
                    5,
                    0,
                    0,
                ],
            ),
            ("dat_evd_wait", &[FIRST_IA + 5, 50, 1]),
            ("dat_evd_wait", &[FIRST_IA + 5, 50, 1]),
            ("dat_evd_wait", &[FIRST_IA + 5, 50, 1]),
            ("dat_cr_query", &[FIRST_IA + 10, 15]),
            ("dat_cr_accept", &[FIRST_IA + 10, FIRST_IA + 8, 3, 1, 5, 5]),
            ("dat_evd_wait", &[FIRST_IA + 5, 50, 1]),
            ("dat_evd_wait", &[FIRST_IA + 5, 50, 1]),
            ("dat_ep_post_send", &[FIRST_IA + 7, 0, 0xFF, 7, 0]),
            ("dat_ep_post_recv", &[FIRST_IA + 8, 0, 0xFF, 7, 0]),
            ("dat_evd_wait", &[FIRST_IA + 6, 50, 1]),
            ("dat_evd_wait", &[FIRST_IA + 6, 50, 1]),
            ("dat_ep_post_recv", &[FIRST_IA + 8, 0, 0xFF, 8, 0]),
            (
                "dat_extension_op",
                &[FIRST_IA + 7, WRITE_IMMEDIATE, 0xFF, 1, 0, 0, 0, 77, 9, 0],
            ),
            ("dat_evd_wait", &[FIRST_IA + 6, 50, 1]),
            ("dat_evd_wait", &[FIRST_IA + 6, 50, 1]),
            (
                "dat_extension_op",
                &[
                    FIRST_IA + 7,
                    FETCH_AND_ADD,
                    1,
                    0,
                    8,
                    0,
                    0,
                    0,
                    0,
                    1,
                    8,
                    8,
                    3,
                    0,
                    10,
                ],
            ),
            (
                "dat_extension_op",
                &[
                    FIRST_IA + 7,
                    COMPARE_AND_SWAP,
                    1,
                    0,
                    8,
                    0,
                    0,
                    0,
                    0,
                    1,
                    8,
                    8,
                    3,
                    4,
                    11,
                ],
            ),
            ("dat_extension_op", &[FIRST_IA + 7, 5]),
            ("dat_ep_modify", &[FIRST_IA + 7, 128, 1, FIRST_IA + 4]),
            ("dat_ep_disconnect", &[FIRST_IA + 7, 0]),
            ("dat_ep_reset", &[FIRST_IA + 7]),
            ("dat_ep_free", &[FIRST_IA + 8]),
        ],
    ),
    (
        "of-the-other-adapter",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_evd_create", &[FIRST_IA + 2, 8, NULL, 0x71]),
            ("dat_srq_create", &[FIRST_IA + 2, FIRST_IA + 4, 1, 8, 2]),
            ("dat_psp_create", &[FIRST_IA, 9, FIRST_IA + 5, 0]),
        ],
    ),
    (
        "closed",
        &[
            ("dat_pz_create", &[FIRST_IA]),
            ("dat_ia_close", &[FIRST_IA, 0]),
            ("dat_pz_free", &[FIRST_IA + 4]),
            ("dat_evd_wait", &[FIRST_IA + 1, 1, 1]),
        ],
    ),
];

/// The controller is the first handle of a run.
const CONTROLLER: u8 = 128;
const SEGMENT: u8 = CONTROLLER + 1;
const IMPORT: u8 = CONTROLLER + 2;
const MADE: (&str, &[u8]) = (
    "rsm_memseg_export_create",
    &[CONTROLLER, 1, 0, PAGE[0], PAGE[1], PAGE[2], 1],
);
const PUBLISHED: (&str, &[u8]) = (
    "rsm_memseg_export_publish",
    &[
        SEGMENT,
        1,
        FIRST_OF_USERS,
        1,
        0,
        READ_AND_WRITE[0],
        READ_AND_WRITE[1],
        READ_AND_WRITE[2],
        0,
        0,
        1,
    ],
);
const CONNECTED: (&str, &[u8]) = (
    "rsm_memseg_import_connect",
    &[
        CONTROLLER,
        1,
        FIRST_OF_USERS,
        READ_AND_WRITE[0],
        READ_AND_WRITE[1],
        READ_AND_WRITE[2],
        1,
    ],
);

const OF_RSM: &[Scenario] = &[
    (
        "moved",
        &[
            MADE,
            PUBLISHED,
            CONNECTED,
            ("rsm_memseg_import_set_mode", &[IMPORT, 0]),
            ("rsm_memseg_import_put", &[IMPORT, 8, 9, 16]),
            ("rsm_memseg_import_get64", &[IMPORT, 8, 9, 2]),
            ("rsm_memseg_import_put8", &[IMPORT, 8, 9, 2]),
            (
                "rsm_create_localmemory_handle",
                &[CONTROLLER, 1, 10, PAGE[0], PAGE[1], PAGE[2]],
            ),
            (
                "rsm_memseg_import_putv",
                &[
                    1,
                    2,
                    1,
                    IMPORT + 1,
                    0,
                    0,
                    16,
                    2,
                    9,
                    8,
                    0,
                    16,
                    1,
                    0,
                    0,
                    0,
                    IMPORT,
                ],
            ),
            (
                "rsm_memseg_import_getv",
                &[1, 1, 1, IMPORT + 1, 0, 0, 16, 1, 0, 0, 0, IMPORT],
            ),
            ("rsm_free_localmemory_handle", &[CONTROLLER, IMPORT + 1]),
            ("rsm_memseg_import_disconnect", &[IMPORT]),
            ("rsm_memseg_export_destroy", &[SEGMENT]),
        ],
    ),
    (
        "signalled",
        &[
            MADE,
            PUBLISHED,
            CONNECTED,
            ("rsm_intr_signal_post", &[IMPORT, 0]),
            ("rsm_intr_signal_wait", &[SEGMENT, 1]),
            ("rsm_memseg_get_pollfd", &[SEGMENT, 1]),
            ("rsm_intr_signal_wait_pollfd", &[1, 1, 1, 1, 1, 1]),
            ("rsm_memseg_release_pollfd", &[SEGMENT]),
            ("rsm_memseg_release_pollfd", &[SEGMENT]),
        ],
    ),
    (
        "mapped-and-barred",
        &[
            MADE,
            PUBLISHED,
            CONNECTED,
            (
                "rsm_memseg_import_map",
                &[
                    IMPORT,
                    1,
                    0,
                    READ_AND_WRITE[0],
                    READ_AND_WRITE[1],
                    READ_AND_WRITE[2],
                    0,
                    PAGE[0],
                    PAGE[1],
                    PAGE[2],
                ],
            ),
            ("rsm_memseg_import_set_mode", &[IMPORT, 1]),
            ("rsm_memseg_import_get_mode", &[IMPORT, 1]),
            ("rsm_memseg_import_init_barrier", &[IMPORT, 2, 1]),
            (
                "rsm_memseg_import_open_barrier",
                &[1, IMPORT, 1, IMPORT + 1],
            ),
            (
                "rsm_memseg_export_rebind",
                &[SEGMENT, 2, 0, PAGE[0], PAGE[1], PAGE[2]],
            ),
            ("rsm_memseg_import_unmap", &[IMPORT]),
        ],
    ),
    (
        "withdrawn",
        &[
            MADE,
            PUBLISHED,
            CONNECTED,
            ("rsm_memseg_export_republish", &[SEGMENT, 1, 0, 0, 0, 0, 1]),
            ("rsm_memseg_export_unpublish", &[SEGMENT]),
            ("rsm_memseg_import_put", &[IMPORT, 8, 9, 16]),
            ("rsm_get_interconnect_topology", &[1]),
            ("rsm_free_interconnect_topology", &[CONTROLLER + 3]),
            ("rsm_get_segmentid_range", &[0, 1, 1, 1]),
        ],
    ),
    (
        "released",
        &[
            ("rsm_get_controller", &[0, 1, 1]),
            ("rsm_get_controller_attr", &[CONTROLLER, 1]),
            MADE,
            ("rsm_release_controller", &[CONTROLLER]),
            ("rsm_release_controller", &[CONTROLLER]),
            ("rsm_release_controller", &[CONTROLLER]),
            ("rsm_memseg_export_destroy", &[CONTROLLER + 2]),
        ],
    ),
];

fn main() {
    write("cabi", OF_1_2, v1::calls(), v1::number_of);
    write("cabi2", OF_2_0, v2::calls(), v2::number_of);
    write("cabi_rsm", OF_RSM, rsm::calls(), rsm::number_of);
}

fn write(target: &str, scenarios: &[Scenario], calls: usize, number_of: fn(&str) -> u8) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("seeds")
        .join(target);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, list) in scenarios {
        let mut input = Vec::new();
        for (call, arguments) in *list {
            let begin = input.len();
            input.push(number_of(call));
            input.extend_from_slice(arguments);
            input.resize(begin + CALL_SIZE, 0);
        }
        std::fs::write(folder.join(name), input).expect("a seed");
    }
    // Every call with zeros only. An input has room for half of them.
    let half = calls.div_ceil(2);
    for (name, numbers) in [("every-call", 0..half), ("every-other-call", half..calls)] {
        let each = numbers.flat_map(|number| {
            let mut call = [0; CALL_SIZE];
            call[0] = u8::try_from(number).expect("there are fewer");
            call
        });
        let each: Vec<u8> = each.collect();
        std::fs::write(folder.join(name), each).expect("a seed");
    }
}
