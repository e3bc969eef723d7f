//! Regions of memory of the system.

mod common;

use std::io::Write;

use common::Pair;
use dat_host::{Access, Error, MappedFile, Pages};

#[test]
fn anonymous_pages_are_registered_written_and_returned() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    for pages in [Pages::anonymous(10_000), Pages::transparent(4 << 20)] {
        let mut pages = pages.unwrap();
        assert!(pages.iter().all(|&byte| byte == 0));
        pages[9_000] = 9;
        let address = pages.as_ptr();
        let region = pair.far.region(pages).unwrap();
        let window = region
            .expose(5_000.., Access::all())
            .to(&far)
            .wait()
            .unwrap();
        near.write(pair.near.copy(b"far").unwrap(), window.remote())
            .wait()
            .unwrap();
        let remote = window.remote().slice(4_000..4_001).unwrap();
        let read = near.read(remote, pair.near.buffer(1).unwrap()).wait();
        assert_eq!(read.unwrap()[..], [9]);
        let pages = window.revoke().wait().into_inner();
        assert_eq!(
            (pages.as_ptr(), &pages[5_000..5_003]),
            (address, &b"far"[..])
        );
    }
    let refused = pair.far.region(Pages::anonymous(0).unwrap());
    assert!(refused.is_err(), "no bytes");
}

/// Either the pages work, or the error says what is missing: the reserve of the host decides.
#[test]
fn huge_pages_work_or_the_error_names_their_reserve() {
    let pair = Pair::new();
    match Pages::huge(3 << 20, 2 << 20) {
        Ok(pages) => {
            assert_eq!(pages.len(), 3 << 20);
            let mut region = pair.far.region(pages).unwrap();
            region[3 << 19] = 1;
            assert_eq!(region.into_inner()[3 << 19], 1);
        }
        Err(error) => {
            assert!(matches!(error, Error::System(_)));
            let text = error.to_string();
            assert!(text.contains("hugepages-2048kB/nr_hugepages"), "{text}");
        }
    }
    // More than any host has.
    let text = Pages::huge(1 << 46, 1 << 21).unwrap_err().to_string();
    assert!(text.contains("huge pages of 2048 KiB"), "{text}");
    assert!(Pages::huge(usize::MAX, 1 << 21).is_err());
    // No processor has pages of 8 KiB.
    assert!(matches!(
        Pages::huge(1 << 13, 1 << 13),
        Err(Error::System(_))
    ));
    assert!(matches!(Pages::huge(4096, 3), Err(Error::Malformed(_))));
}

#[test]
#[expect(unsafe_code, reason = "only this test has the file")]
fn peers_read_and_write_mapped_files() {
    let pair = Pair::new();
    let (near, far) = pair.connect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"content of the file").unwrap();

    // SAFETY: nobody else has the file, whose length stays the same.
    let mapped = unsafe { MappedFile::new(&file) }.unwrap();
    let region = pair.far.read_region(mapped).unwrap();
    let window = region.expose(..7).to(&far).wait().unwrap();
    let read = near.read(window.remote(), pair.near.buffer(7).unwrap());
    assert_eq!(&read.wait().unwrap()[..], b"content");
    drop(window.revoke().wait().into_inner().unwrap());

    // SAFETY: as above; the first mapping is gone.
    let pages = unsafe { Pages::of_file(&file) }.unwrap();
    let region = pair.far.region(pages).unwrap();
    let window = region.expose(.., Access::WRITE).to(&far).wait().unwrap();
    near.write(pair.near.copy(b"CONTENT").unwrap(), window.remote())
        .wait()
        .unwrap();
    let pages = window.revoke().wait().into_inner();
    pages.flush().unwrap();
    drop(pages);
    let mut text = String::new();
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    assert_eq!(text, "CONTENT of the file");
}

#[test]
#[expect(unsafe_code, reason = "the open fails")]
fn files_that_cannot_be_mapped_are_errors() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, b"bytes").unwrap();
    let for_reads = std::fs::File::open(file.path()).unwrap();
    // SAFETY: nobody else has the file.
    let refused = unsafe { Pages::of_file(&for_reads) }.unwrap_err();
    assert!(matches!(refused, Error::System(_)), "{refused}");
}
