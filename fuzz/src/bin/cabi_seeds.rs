//! Writes the seeds of the target `cabi`: lists of calls that a program would make, and every call with nothing but zeros.

use std::path::Path;

use dat_fuzz::cabi::{CALL_SIZE, calls, number_of};

/// An argument: a number, or a handle by its place among those that the run has had. Of each run, the first four are two adapters and
/// their dispatchers.
const NULL: u8 = 0;
const FIRST_IA: u8 = 128;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/cabi");
    std::fs::create_dir_all(&folder).expect("a folder");
    let scenarios: [(&str, &[(&str, &[u8])]); 6] = [
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
    for (name, calls) in scenarios {
        let mut input = Vec::new();
        for (call, arguments) in calls {
            let begin = input.len();
            input.push(number_of(call));
            input.extend_from_slice(arguments);
            input.resize(begin + CALL_SIZE, 0);
        }
        std::fs::write(folder.join(name), input).expect("a seed");
    }
    // Every call, with nothing. An input takes half of them.
    let half = calls().div_ceil(2);
    for (name, numbers) in [("every-call", 0..half), ("every-other-call", half..calls())] {
        let calls = numbers.flat_map(|number| {
            let mut call = [0; CALL_SIZE];
            call[0] = u8::try_from(number).expect("there are fewer");
            call
        });
        let calls: Vec<u8> = calls.collect();
        std::fs::write(folder.join(name), calls).expect("a seed");
    }
}
