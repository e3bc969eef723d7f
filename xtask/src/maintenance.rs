//! Finds the cache maintenance instructions in the machine code of a build.

use anyhow::{Context, Result, bail, ensure};
use object::read::archive::ArchiveFile;
use object::{Architecture, File, Object as _, ObjectSection as _, SectionKind};
use std::collections::BTreeSet;

/// Instructions of one processor: mask, bits under the mask, and name.
type Instructions = &'static [(u32, u32, &'static str)];

/// The bits of the instructions, from the manuals and not from the driver's assembly.
///
/// The last argument of each is any register.
const ARM: Instructions = &[
    (0xFFFF_FFE0, 0xD508_7620, "dc ivac"),
    (0xFFFF_FFE0, 0xD50B_7A20, "dc cvac"),
    (0xFFFF_FFE0, 0xD50B_7E20, "dc civac"),
    (0xFFFF_FFE0, 0xD53B_0020, "mrs ctr_el0"),
    (0xFFFF_FFFF, 0xD503_3F9F, "dsb sy"),
];
const RISC_V: Instructions = &[
    (0xFFF0_7FFF, 0x0000_200F, "cbo.inval"),
    (0xFFF0_7FFF, 0x0010_200F, "cbo.clean"),
    (0xFFF0_7FFF, 0x0020_200F, "cbo.flush"),
    (0xFFFF_FFFF, 0x0FF0_000F, "fence iorw, iorw"),
];

/// The instructions that must be present, and no others of the list.
///
/// An invalidation without a clean discards stores.
const ARM_HAS: &[&str] = &["dc civac", "dc cvac", "dsb sy", "mrs ctr_el0"];
const RISC_V_HAS: &[&str] = &["cbo.clean", "cbo.flush", "fence iorw, iorw"];

/// Checks that an image or a static library has exactly the maintenance instructions it needs.
///
/// # Errors
/// The instructions differ (the error names those found and those required), or the processor has
/// no known maintenance instructions.
pub(crate) fn check(bytes: &[u8]) -> Result<()> {
    let mut found = BTreeSet::new();
    let mut architecture = None;
    for object in objects(bytes)? {
        architecture = Some(object.architecture());
        found.extend(instructions(&object)?);
    }
    let must: BTreeSet<_> = match architecture.context("no machine code")? {
        Architecture::Aarch64 => ARM_HAS,
        Architecture::Riscv32 | Architecture::Riscv64 => RISC_V_HAS,
        other => bail!("the expected cache maintenance of {other:?} is not defined"),
    }
    .iter()
    .copied()
    .collect();
    ensure!(
        found == must,
        "cache maintenance uses {found:?}, expected {must:?}"
    );
    Ok(())
}

/// Returns the objects of a static library, or the image itself.
fn objects(bytes: &[u8]) -> Result<Vec<File<'_>>> {
    let Ok(archive) = ArchiveFile::parse(bytes) else {
        return Ok(vec![File::parse(bytes)?]);
    };
    let mut objects = Vec::new();
    for member in archive.members() {
        // The archive also contains the compiler's metadata.
        if let Ok(object) = File::parse(member?.data(bytes)?) {
            objects.push(object);
        }
    }
    Ok(objects)
}

/// Returns the maintenance instructions in the code of an object.
fn instructions(object: &File<'_>) -> Result<BTreeSet<&'static str>> {
    let (known, is_compressed) = match object.architecture() {
        Architecture::Aarch64 => (ARM, false),
        Architecture::Riscv32 | Architecture::Riscv64 => (RISC_V, true),
        _ => return Ok(BTreeSet::new()),
    };
    let mut found = BTreeSet::new();
    for section in object.sections() {
        if section.kind() == SectionKind::Text {
            found.extend(decode(section.data()?, known, is_compressed));
        }
    }
    Ok(found)
}

/// Returns the known instructions in machine code.
///
/// An instruction of a compressed set has two bytes, unless its lowest two bits are set: then it
/// has four.
fn decode(mut code: &[u8], known: Instructions, is_compressed: bool) -> Vec<&'static str> {
    let mut found = Vec::new();
    while let Some((bytes, rest)) = code.split_first_chunk() {
        let word = u32::from_le_bytes(*bytes);
        if is_compressed && word & 3 != 3 {
            code = &code[2..];
            continue;
        }
        let is_it = |(mask, bits, _): &&(u32, u32, &'static str)| word & mask == *bits;
        found.extend(known.iter().find(is_it).map(|(_, _, name)| *name));
        code = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn instructions_of_arm_are_found_with_any_register() {
        // Names as in LLVM's disassembler.
        let code = bytes(&[
            0xD53B_0028, // mrs x8, ctr_el0
            0xD503_3F9F, // dsb sy
            0xD50B_7A2A, // dc cvac, x10
            0xD50B_7E29, // dc civac, x9
            0xD508_763F, // dc ivac, xzr
            0xD503_33BF, // dmb osh
        ]);
        assert_eq!(
            decode(&code, ARM, false),
            ["mrs ctr_el0", "dsb sy", "dc cvac", "dc civac", "dc ivac"]
        );
    }

    #[test]
    fn instructions_of_risc_v_are_found_between_compressed_ones() {
        let mut code = vec![0x01, 0x00]; // c.nop
        code.extend(bytes(&[
            0x0015_200F, // cbo.clean (a0)
            0x0025_A00F, // cbo.flush (a1)
            0x0005_200F, // cbo.inval (a0)
            0x0FF0_000F, // fence iorw, iorw
            0x0045_200F, // cbo.zero (a0)
        ]));
        code.extend([0x82, 0x80]); // c.jr ra
        assert_eq!(
            decode(&code, RISC_V, true),
            ["cbo.clean", "cbo.flush", "cbo.inval", "fence iorw, iorw"]
        );
        // The same bytes across an instruction boundary are no instruction.
        let shifted = [&[0x13, 0x00][..], &code[2..]].concat();
        assert!(!decode(&shifted, RISC_V, true).contains(&"cbo.clean"));
    }

    #[test]
    fn a_file_without_machine_code_is_refused() {
        assert!(check(b"!<arch>\n").is_err());
        assert!(check(b"no image").is_err());
        let this = std::env::current_exe().expect("this test");
        let program = std::fs::read(this).expect("its bytes");
        let refusal = check(&program).expect_err("a processor with coherent devices");
        assert!(
            refusal
                .to_string()
                .contains("the expected cache maintenance of")
        );
    }
}
