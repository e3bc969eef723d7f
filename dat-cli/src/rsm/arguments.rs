//! The command line of `dat rsm`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use crate::arguments::{DeviceName, WaitingArguments, at_least_one, local_path, up_to, wanted};
use crate::failure::Failure;
use crate::peer::{Peer, QUALIFIER, parse_ip, parse_peer};
use crate::size::{counted, parse_duration, parse_offset, parse_size};

/// The default id of a segment.
const SEGMENT: &str = "0x600000";

#[derive(Args)]
#[command(
    arg_required_else_help = false,
    after_help = "\
Without --device or --connect, both nodes are in this process, on the mock; export, put and get verify every byte. With a device, `dat rsm export --device NAME` serves importers until it is interrupted, and they use --connect. Sizes are in bytes or have a binary unit: 64K and 64KiB are both 65536."
)]
pub(crate) struct RsmArguments {
    #[command(subcommand)]
    pub(crate) command: RsmCommand,
}

#[derive(Subcommand)]
pub(crate) enum RsmCommand {
    /// Export a file, or zeros, as a segment
    Export(ExportArguments),
    /// Put a file into a segment with rsm_memseg_import_putv
    Put(PutArguments),
    /// Get a segment into a file with rsm_memseg_import_getv
    Get(GetArguments),
    /// Measure putv and getv, and compare putv with plain RDMA Writes and a flush
    Bench(BenchArguments),
}

#[derive(Args)]
#[command(group = ArgGroup::new("content").args(["file", "size"]).required(true).multiple(true))]
pub(crate) struct ExportArguments {
    /// The initial content of the segment, padded with zeros to whole pages
    #[arg(value_name = "FILE", value_parser = local_path())]
    pub(crate) file: Option<PathBuf>,
    /// Length of the segment, 1 to 1G, rounded up to whole pages [default: that of the file]
    #[arg(long, value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) size: Option<u64>,
    /// The segment id to publish
    #[arg(long, value_name = "ID", default_value = SEGMENT, value_parser = parse_segment)]
    pub(crate) segment: u32,
    /// Permissions of importers, three octal digits like a file mode: user, group, others; each is
    /// 0, 2 (write), 4 (read) or 6
    #[arg(long, value_name = "DIGITS", default_value = "666", value_parser = parse_permission)]
    pub(crate) permission: u32,
    /// Write the final content of the segment to this new file
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(crate) save: Option<PathBuf>,
    /// Post this many signals from the importer and wait for each; on a device, exit after this
    /// many signals from importers
    #[arg(long, value_name = "COUNT", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) signals: Option<u64>,
    #[command(flatten, next_help_heading = DEVICES)]
    pub(crate) named: DeviceName,
    /// Listen on this port of the device, 1 to 65535
    #[arg(long, default_value_t = QUALIFIER, requires = "device", value_parser = up_to::<u16, 65535>, allow_negative_numbers = true, help_heading = DEVICES)]
    pub(crate) port: u16,
    /// Also allow imports from the host with this address; may be repeated [default: this host
    /// only]
    #[arg(long, value_name = "ADDR", requires = "device", value_parser = parse_ip, help_heading = DEVICES)]
    pub(crate) importer: Vec<SocketAddr>,
    #[command(flatten, next_help_heading = DEVICES)]
    pub(crate) waiting: WaitingArguments,
}

/// Which device carries the segment, and who exports it; without either it is the mock.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = DEVICES)]
pub(crate) struct SegmentDevice {
    #[command(flatten)]
    pub(crate) named: DeviceName,
    /// Import from `dat rsm export --device` in another process or on another host
    #[arg(long, value_name = "HOST[:PORT]", value_parser = parse_peer)]
    pub(crate) connect: Option<Peer>,
    #[command(flatten)]
    pub(crate) waiting: WaitingArguments,
}

/// The heading of device options in `--help`.
const DEVICES: &str = "RDMA devices";

impl RsmCommand {
    /// Returns true if the command is for an RDMA device.
    ///
    /// # Errors
    /// - Usage: `--wait` or `--verbose` is given without a device, or `--path` to `export`.
    pub(crate) fn wants_device(&self) -> Result<bool, Failure> {
        match self {
            Self::Export(ExportArguments { named, waiting, .. }) => {
                if let (None, Some(path)) = (&named.device, named.path) {
                    return Err(Failure::usage(
                        "--path cannot be used here",
                        "without --device, both nodes are in this process, on the mock, which has no \
                        choice of ways",
                        format!(
                            "add --device roce to serve importers with --path {}, or remove --path",
                            path.name()
                        ),
                    ));
                }
                wanted(named, false, *waiting)
            }
            Self::Put(PutArguments { import, .. })
            | Self::Get(GetArguments { import, .. })
            | Self::Bench(BenchArguments { import, .. }) => {
                let device = &import.device;
                wanted(&device.named, device.connect.is_some(), device.waiting)
            }
        }
    }

    /// Returns the device that the arguments name.
    pub(crate) const fn named(&self) -> &DeviceName {
        match self {
            Self::Export(export) => &export.named,
            Self::Put(put) => &put.import.device.named,
            Self::Get(get) => &get.import.device.named,
            Self::Bench(bench) => &bench.import.device.named,
        }
    }
}

/// Which segment, and how to move its bytes.
#[derive(Args, Clone)]
pub(crate) struct ImportArguments {
    /// The id of the segment
    #[arg(long, value_name = "ID", default_value = SEGMENT, value_parser = parse_segment)]
    pub(crate) segment: u32,
    /// Bytes per entry of a vector, 1 to 1G
    #[arg(long, default_value = "64K", value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) piece: u64,
    /// Entries per vector, 1 to 1024
    #[arg(long, default_value_t = 16, value_parser = up_to::<u16, 1024>, allow_negative_numbers = true)]
    pub(crate) entries: u16,
    /// When transfers count as completed
    #[arg(long, value_enum, default_value_t)]
    pub(crate) mode: ModeName,
    #[command(flatten)]
    pub(crate) device: SegmentDevice,
}

/// When transfers count as completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeName {
    /// When the call returns
    #[default]
    Implicit,
    /// When a barrier is closed after several vectors
    Explicit,
}

#[derive(Args)]
pub(crate) struct PutArguments {
    /// The file to put
    #[arg(value_name = "FILE", value_parser = local_path())]
    pub(crate) file: PathBuf,
    /// Offset of the file in the segment
    #[arg(long, default_value = "0", value_parser = parse_offset, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// Signal the exporter after the transfer
    #[arg(long)]
    pub(crate) signal: bool,
    #[command(flatten)]
    pub(crate) import: ImportArguments,
}

#[derive(Args)]
#[command(group = ArgGroup::new("exporter").args(["from", "connect"]).required(true))]
pub(crate) struct GetArguments {
    /// The file to write, which must not exist yet
    #[arg(value_name = "FILE", value_parser = local_path())]
    pub(crate) file: PathBuf,
    /// Offset in the segment
    #[arg(long, default_value = "0", value_parser = parse_offset, allow_negative_numbers = true)]
    pub(crate) offset: u64,
    /// Number of bytes [default: to the end of the --from file, or of the imported segment]
    #[arg(long, value_parser = parse_size, allow_negative_numbers = true)]
    pub(crate) length: Option<u64>,
    /// Content of the segment, if both ends are in this process
    #[arg(long, value_name = "FILE", value_parser = local_path())]
    pub(crate) from: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) import: ImportArguments,
}

impl GetArguments {
    /// Returns the number of bytes to get.
    ///
    /// `end` is the end of the exported file; zeros fill the segment up to `segment` bytes.
    ///
    /// # Errors
    /// - Usage: `--offset` and `--length` leave the segment, or no byte is left to get.
    pub(crate) fn bytes(&self, end: u64, segment: u64) -> Result<u64, Failure> {
        let offset = self.offset;
        let (from, end_of_content) = match &self.from {
            Some(from) => (from.display().to_string(), end),
            None => ("the segment".into(), segment),
        };
        let Some(length) = self.length else {
            // An empty file is got as an empty file, if the offset is 0.
            if offset == 0 || offset < end_of_content {
                return Ok(end_of_content - offset.min(end_of_content));
            }
            return Err(Failure::usage(
                "no bytes to get",
                format!(
                    "{from} has {}, and --offset is {offset}",
                    counted(end_of_content, "byte")
                ),
                match end_of_content.checked_sub(1) {
                    Some(last) => format!("choose an --offset of at most {last}"),
                    None => "remove --offset".into(),
                },
            ));
        };
        let room = segment.saturating_sub(offset);
        if length <= room {
            return Ok(length);
        }
        Err(Failure::usage(
            "the range exceeds the segment",
            format!(
                "it has {}, and --offset {offset} with --length {length} ends after {}",
                counted(segment, "byte"),
                counted(offset.saturating_add(length), "byte")
            ),
            match room {
                0 => format!("choose an --offset below {segment}"),
                room => format!("choose a --length of at most {room}, or remove it"),
            },
        ))
    }

    /// Returns the arguments that export a file if both ends are in this process.
    pub(crate) fn exported(&self, from: &Path) -> ExportArguments {
        let device = &self.import.device;
        ExportArguments {
            file: Some(from.into()),
            size: None,
            segment: self.import.segment,
            permission: 0o444,
            save: None,
            signals: None,
            named: device.named.clone(),
            port: QUALIFIER,
            importer: Vec::new(),
            waiting: device.waiting,
        }
    }
}

#[derive(Args)]
#[command(
    after_help = "With --connect, the measurement overwrites the first --piece x --entries bytes of the exported segment."
)]
pub(crate) struct BenchArguments {
    /// Vectors of each kind, rounded up to a multiple of 16 [default: as many as fit into
    /// --duration]
    #[arg(long, short = 'n', value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// Time for each kind, 1ms to 1day, such as 500ms or 2s
    #[arg(long, default_value = "1s", value_parser = parse_duration, conflicts_with = "iterations", allow_negative_numbers = true)]
    pub(crate) duration: Duration,
    #[command(flatten)]
    pub(crate) import: ImportArguments,
}

/// Parses an id for applications, in hexadecimal with `0x`, or in decimal.
fn parse_segment(text: &str) -> Result<u32, String> {
    let id = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    id.ok()
        .filter(|id| (0x40_0000..0x8000_0000).contains(id))
        .ok_or_else(|| "the segment id must be from 0x400000 to 0x7fffffff".into())
}

fn parse_permission(text: &str) -> Result<u32, String> {
    Some(text)
        .filter(|text| text.len() == 3 && text.bytes().all(|digit| b"0246".contains(&digit)))
        .and_then(|text| u32::from_str_radix(text, 8).ok())
        .ok_or_else(|| {
            "the permission must be three octal digits, each 0, 2, 4 or 6, for example 644".into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_permissions_are_parsed() {
        assert_eq!(parse_segment("0x600000"), Ok(0x60_0000));
        assert_eq!(parse_segment("4194304"), Ok(0x40_0000));
        for text in ["", "0", "0x3fffff", "0x80000000", "600000x", "-1", "0x"] {
            assert!(parse_segment(text).is_err(), "{text}");
        }
        assert_eq!(parse_permission("640"), Ok(0o640));
        assert_eq!(parse_permission("006"), Ok(0o006));
        for text in [
            "", "777", "1000", "8", "-4", "6", "66", "0666", "+66", " 66",
        ] {
            assert!(parse_permission(text).is_err(), "{text}");
        }
    }
}
