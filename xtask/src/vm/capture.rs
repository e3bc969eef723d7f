//! Judgement of captured RoCEv2 packets: their ICRC, their dissection by Wireshark, repetitions.
//!
//! Nothing is shared with `backend-roce`, whose mistakes would otherwise hide themselves.

use anyhow::{Context, Result, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// The dissector, a program of Wireshark.
pub(super) const DISSECTOR: &str = "tshark";

/// Length of the header of a capture file, and of each of its records.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// The first bytes of a capture file of a little-endian machine.
const MAGIC: [u8; 4] = 0xa1b2_c3d4_u32.to_le_bytes();
/// The card of the first guest, on whose end of the cable packets are captured.
const FIRST_CARD: [u8; 6] = [0x52, 0x54, 0, 0, 0, 1];

/// Opcodes: a datagram, as of the connection manager, an acknowledgement, and one with a value.
const SEND_ONLY_OF_DATAGRAMS: u8 = 0x64;
const ACKNOWLEDGE: u8 = 0x11;
const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
const READ_REQUEST: u8 = 0x0c;
/// QPN of the connection manager.
const MANAGEMENT: u64 = 1;
/// Attributes of messages of the connection manager.
const REQ: u16 = 0x10;
const REP: u16 = 0x13;

/// Counts of a capture. Of two senders, the first is the guest of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Packets of RoCEv2: everything over UDP.
    packets: u64,
    /// Numbers of the frames with another ICRC than the computed one.
    wrong: Vec<u64>,
    /// Numbers of the frames that the dissector does not read to their end.
    malformed: Vec<u64>,
    /// Packets of requests of reliable connections, by sender.
    requests: [u64; 2],
    /// Those of them that repeat an earlier PSN.
    repeated: [u64; 2],
    /// Messages of connection management.
    messages: u64,
    /// Those of them that repeat an earlier message.
    messages_repeated: u64,
}

impl Counts {
    /// Returns the rows of these counts for a page: what, how many, and how many of them differ.
    pub(super) fn rows(&self) -> Vec<String> {
        let row = |what: &str, all: u64, some: u64| format!("{what}|{all}|{some}");
        let length = |frames: &[u64]| u64::try_from(frames.len()).unwrap_or(u64::MAX);
        vec![
            row(
                "captured packets, with a wrong ICRC",
                self.packets,
                length(&self.wrong),
            ),
            row(
                "captured packets, malformed to Wireshark",
                self.packets,
                length(&self.malformed),
            ),
            row(
                "packets of requests of RoCEv2 in software, repeated",
                self.requests[0],
                self.repeated[0],
            ),
            row(
                "packets of requests of soft-RoCE, repeated",
                self.requests[1],
                self.repeated[1],
            ),
            row(
                "messages of connection management, repeated",
                self.messages,
                self.messages_repeated,
            ),
        ]
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, row) in self.rows().iter().enumerate() {
            let before = if index == 0 { "" } else { "; " };
            let mut fields = row.split('|');
            let mut field = || fields.next().unwrap_or_default();
            let (what, all, some) = (field(), field(), field());
            write!(f, "{before}{what}: {some} of {all}")?;
        }
        Ok(())
    }
}

/// Judges a capture, and a copy with one changed byte, which must be reported.
///
/// Fails if a packet has a wrong ICRC or is malformed.
pub(super) fn judge(file: &Path) -> Result<Counts> {
    let counts = count(file)?;
    ensure!(counts.packets > 0, "no packet was captured");
    ensure!(
        counts.wrong.is_empty() && counts.malformed.is_empty(),
        "{} has {} packets; frames with a wrong ICRC: {:?}; malformed frames: {:?}",
        file.display(),
        counts.packets,
        counts.wrong,
        counts.malformed
    );
    let twin = tempfile::NamedTempFile::new().context("a file for the changed copy")?;
    let changed = fs::read(file).map(with_a_changed_byte)??;
    fs::write(&twin, changed)?;
    let of_twin = count(twin.path())?;
    ensure!(
        of_twin.wrong.len() == 1 && of_twin.wrong == of_twin.malformed,
        "a changed byte is not reported once by each check: {of_twin}"
    );
    Ok(counts)
}

/// Counts the packets of a capture.
fn count(file: &Path) -> Result<Counts> {
    let mut counts = Counts::default();
    let mut flows = Flows::default();
    let open = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    let mut frame = 0;
    each_frame(BufReader::new(open), |bytes| {
        frame += 1;
        let packet = Packet::read(bytes).with_context(|| format!("frame {frame}"))?;
        if let Some(packet) = packet {
            counts.packets += 1;
            if packet.icrc() != Some(packet.computed_icrc()) {
                counts.wrong.push(frame);
            }
            flows.count(&packet, &mut counts);
        }
        Ok(())
    })?;
    counts.malformed = malformed(file, counts.packets)?;
    Ok(counts)
}

/// Calls `look` for each frame of a capture file.
fn each_frame(mut file: impl Read, mut look: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut header = [0; FILE_HEADER];
    file.read_exact(&mut header)
        .context("the header of a capture")?;
    ensure!(
        header.starts_with(&MAGIC) && header[20..] == [1, 0, 0, 0],
        "this is no capture of Ethernet"
    );
    let mut frame = Vec::new();
    loop {
        let mut record = [0; RECORD_HEADER];
        match file.read(&mut record[..1])? {
            0 => return Ok(()),
            _ => file.read_exact(&mut record[1..]).context("a record")?,
        }
        let word = |at: usize| {
            let bytes = record[at..at + 4].try_into().unwrap_or_default();
            u32::from_le_bytes(bytes)
        };
        ensure!(word(8) == word(12), "a frame was captured in part");
        frame.resize(usize::try_from(word(8))?, 0);
        file.read_exact(&mut frame).context("a frame")?;
        look(&frame)?;
    }
}

/// Returns the capture up to its first acknowledgement, which becomes one with a value.
///
/// Its opcode is one byte. The packet is then too short for its headers.
fn with_a_changed_byte(mut capture: Vec<u8>) -> Result<Vec<u8>> {
    let mut end = FILE_HEADER;
    let mut at = None;
    each_frame(capture.as_slice(), |frame| {
        if at.is_none() {
            let start = end + RECORD_HEADER;
            end = start + frame.len();
            let packet = Packet::read(frame)?.filter(|packet| packet.byte(0) == ACKNOWLEDGE);
            at = packet.map(|packet| start + packet.start);
        }
        Ok(())
    })?;
    let at = at.context("the capture has no acknowledgement")?;
    capture.truncate(end);
    capture[at] = ATOMIC_ACKNOWLEDGE;
    Ok(capture)
}

/// A packet of RoCEv2, in a frame.
struct Packet<'f> {
    /// 0 if the first guest sent it, otherwise 1.
    sender: usize,
    source: &'f [u8],
    target: &'f [u8],
    /// The headers of IP and UDP.
    ip: &'f [u8],
    udp: &'f [u8],
    /// From the base transport header to the ICRC.
    bytes: &'f [u8],
    /// The position of `bytes` in the frame.
    start: usize,
}

impl<'f> Packet<'f> {
    /// Returns the packet of a frame; `None` if the frame has no datagram of UDP.
    fn read(frame: &'f [u8]) -> Result<Option<Self>> {
        const UDP: u8 = 17;
        const ETHERNET: usize = 14;
        let part = |start: usize, length: usize| {
            let part = frame.get(start..start + length);
            part.context("a frame shorter than its headers")
        };
        let (length, source, target) = match part(12, 2)? {
            [0x08, 0x00] if part(ETHERNET, 20)?[9] == UDP => {
                let ip = part(ETHERNET, 20)?;
                ensure!(ip[0] == 0x45, "an IPv4 header with options");
                ensure!(ip[6] & 0x3f == 0 && ip[7] == 0, "a fragment");
                (20, 12..16, 16..20)
            }
            [0x86, 0xdd] => match part(ETHERNET, 40)?[6] {
                UDP => (40, 8..24, 24..40),
                44 => bail!("a fragment"),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let ip = part(ETHERNET, length)?;
        let udp = part(ETHERNET + length, 8)?;
        let datagram = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
        let start = ETHERNET + length + 8;
        let bytes = part(start, datagram.saturating_sub(8))?;
        Ok(Some(Self {
            sender: usize::from(part(6, 6)? != FIRST_CARD),
            source: &ip[source],
            target: &ip[target],
            ip,
            udp,
            bytes,
            start,
        }))
    }

    /// Returns a byte of the packet, 0 beyond its end.
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    /// Returns a number of `length` bytes, the highest first.
    fn number(&self, at: usize, length: usize) -> u64 {
        (at..at + length).fold(0, |number, at| (number << 8) | u64::from(self.byte(at)))
    }

    /// Returns the ICRC of the packet.
    fn icrc(&self) -> Option<u32> {
        self.bytes
            .last_chunk()
            .map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Computes the ICRC from the captured bytes.
    fn computed_icrc(&self) -> u32 {
        let mut ip = self.ip.to_vec();
        let variable: &[usize] = match ip.len() {
            // Type of service, time to live, checksum.
            20 => &[1, 8, 10, 11],
            // Traffic class and flow label, hop limit.
            _ => &[1, 2, 3, 7],
        };
        for at in variable {
            ip[*at] = 0xff;
        }
        if ip.len() == 40 {
            ip[0] |= 0x0f;
        }
        let mut udp = self.udp.to_vec();
        udp[6..8].fill(0xff);
        let covered = self.bytes.len().saturating_sub(4);
        let mut bytes = self.bytes[..covered].to_vec();
        // Congestion bits and reserved bits.
        if let Some(byte) = bytes.get_mut(4) {
            *byte = 0xff;
        }
        let all = [&[0xff; 8][..], &ip, &udp, &bytes];
        crc32(all.into_iter().flatten().copied())
    }
}

/// Computes the CRC-32 of Ethernet.
fn crc32(bytes: impl Iterator<Item = u8>) -> u32 {
    /// The remainder of each byte, bit by bit as the definition says.
    const REMAINDERS: [u32; 256] = {
        let mut remainders = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut sum = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                let divided = if sum & 1 == 1 { 0xedb8_8320 } else { 0 };
                sum = (sum >> 1) ^ divided;
                bit += 1;
            }
            remainders[byte] = sum;
            byte += 1;
        }
        remainders
    };
    let all = bytes.fold(u32::MAX, |sum, byte| {
        let [low, ..] = sum.to_le_bytes();
        (sum >> 8) ^ REMAINDERS[usize::from(low ^ byte)]
    });
    !all
}

/// The requests and messages that a capture has had so far.
#[derive(Default)]
struct Flows {
    /// Queue pairs by address and number, with what the next request to each needs.
    queue_pairs: HashMap<(Vec<u8>, u64), Flow>,
    /// The path MTU that a REQ proposes, by address and communication id of its sender.
    proposed: HashMap<(Vec<u8>, u64), u64>,
    messages: HashSet<(Vec<u8>, Vec<u8>, u64, u16)>,
}

struct Flow {
    /// The communication id, which differs for a later user of the same number.
    communication: u64,
    /// The PSN after the highest one of a request so far.
    next: u64,
    path_mtu: u64,
}

impl Flows {
    /// Counts a packet, and whether it repeats an earlier one.
    fn count(&mut self, packet: &Packet<'_>, counts: &mut Counts) {
        let opcode = packet.byte(0);
        if opcode == SEND_ONLY_OF_DATAGRAMS && packet.number(5, 3) == MANAGEMENT {
            self.count_message(packet, counts);
        }
        if !matches!(opcode, 0..=READ_REQUEST | 0x13 | 0x14 | 0x16 | 0x17) {
            return;
        }
        counts.requests[packet.sender] += 1;
        let key = (packet.target.to_vec(), packet.number(5, 3));
        let Some(flow) = self.queue_pairs.get_mut(&key) else {
            return;
        };
        let psn = packet.number(9, 3);
        let packets = match opcode {
            READ_REQUEST => packet.number(24, 4).div_ceil(flow.path_mtu).max(1),
            _ => 1,
        };
        let ahead = |psn: u64| psn.wrapping_sub(flow.next) & 0xff_ffff;
        const HALF: u64 = 1 << 23;
        if ahead(psn) >= HALF {
            counts.repeated[packet.sender] += 1;
        }
        if ahead(psn + packets) < HALF {
            flow.next = (psn + packets) & 0xff_ffff;
        }
    }

    /// Counts a message of connection management, and learns the queue pairs that it names.
    fn count_message(&mut self, packet: &Packet<'_>, counts: &mut Counts) {
        // After the base transport header and the datagram header.
        const MAD: usize = 20;
        const BODY: usize = MAD + 24;
        counts.messages += 1;
        let attribute = packet.number(MAD + 16, 2) as u16;
        // The same request may go to two ports.
        let message = (
            packet.source.to_vec(),
            packet.udp[2..4].to_vec(),
            packet.number(MAD + 8, 8),
            attribute,
        );
        if !self.messages.insert(message) {
            counts.messages_repeated += 1;
        }
        let communication = packet.number(BODY, 4);
        let path_mtu_of = |code: u64| 128 << code.clamp(1, 5);
        let (number, psn, path_mtu) = match attribute {
            REQ => {
                let path_mtu = path_mtu_of(packet.number(BODY + 50, 1) >> 4);
                let key = (packet.source.to_vec(), communication);
                self.proposed.insert(key, path_mtu);
                (32, 44, path_mtu)
            }
            REP => {
                let key = (packet.target.to_vec(), packet.number(BODY + 4, 4));
                let proposed = self.proposed.get(&key).copied();
                (12, 20, proposed.unwrap_or(path_mtu_of(1)))
            }
            _ => return,
        };
        let key = (packet.source.to_vec(), packet.number(BODY + number, 3));
        let is_known = self
            .queue_pairs
            .get(&key)
            .is_some_and(|flow| flow.communication == communication);
        if !is_known {
            let flow = Flow {
                communication,
                next: packet.number(BODY + psn, 3),
                path_mtu,
            };
            self.queue_pairs.insert(key, flow);
        }
    }
}

/// Returns the frames that Wireshark's dissector does not read to the end, of `packets` packets.
fn malformed(file: &Path, packets: u64) -> Result<Vec<u64>> {
    const FIELDS: [&str; 4] = [
        "frame.number",
        "infiniband.bth.psn",
        "infiniband.invariant.crc",
        "_ws.malformed",
    ];
    // Protocols that the dissector guesses in payload; a wrong guess would hide the ICRC.
    const GUESSES: [&str; 8] = [
        "fcoib",
        "infiniband_sdp",
        "iser",
        "lnet",
        "nvme-rdma",
        "rpcordma",
        "smb_direct",
        "smc",
    ];
    let mut command = Command::new(DISSECTOR);
    command.arg("-n").arg("-r").arg(file);
    // Requests for connections may go to the port of their qualifier.
    command.args(["-d", "udp.port==1-65535,infiniband"]);
    // A message of ICMP quotes a packet in part.
    command.args(["-Y", "udp && !icmp && !icmpv6", "-T", "fields"]);
    for guess in GUESSES {
        command.args(["--disable-protocol", guess]);
    }
    // The two guesses that are no protocols of their own: payload of 4 bytes can be an EtherType.
    for guess in ["eth_over_ib", "mellanox_eoib"] {
        command.args(["--disable-heuristic", guess]);
    }
    for field in FIELDS {
        command.args(["-e", field]);
    }
    // The dissector warns there if root runs it.
    let output = command.stderr(Stdio::null()).output().context(DISSECTOR)?;
    ensure!(
        output.status.success(),
        "{DISSECTOR} failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context(DISSECTOR)?;
    let mut malformed = Vec::new();
    let mut lines = 0;
    for line in text.lines() {
        lines += 1;
        let fields: Vec<&str> = line.split('\t').collect();
        let [number, psn, icrc, complaint] = fields[..] else {
            bail!("unexpected line of {DISSECTOR}: {line}");
        };
        if psn.is_empty() || icrc.is_empty() || !complaint.is_empty() {
            malformed.push(number.parse().context(DISSECTOR)?);
        }
    }
    ensure!(
        lines == packets,
        "{DISSECTOR} finds {lines} packets of {packets}"
    );
    Ok(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Captures between soft-RoCE and a prototype of this project's.
    const CAPTURES: [(&str, u64); 2] = [("rxe-6.1-ipv4.pcap", 305), ("rxe-6.1-ipv6.pcap", 29)];

    fn capture(name: &str) -> Vec<u8> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../backend-roce/tests/captures");
        fs::read(folder.join(name)).expect("capture")
    }

    /// Counts without the dissector.
    fn counted(capture: &[u8]) -> Counts {
        let mut counts = Counts::default();
        let mut flows = Flows::default();
        each_frame(capture, |frame| {
            if let Some(packet) = Packet::read(frame)? {
                counts.packets += 1;
                if packet.icrc() != Some(packet.computed_icrc()) {
                    counts.wrong.push(counts.packets);
                }
                flows.count(&packet, &mut counts);
            }
            Ok(())
        })
        .expect("whole frames");
        counts
    }

    /// The capture, and after it the frame of that index again.
    fn with_again(mut capture: Vec<u8>, wanted: impl Fn(&Packet<'_>) -> bool) -> Vec<u8> {
        let mut end = FILE_HEADER;
        let mut again = Vec::new();
        each_frame(capture.clone().as_slice(), |frame| {
            let whole = RECORD_HEADER + frame.len();
            let is_wanted = Packet::read(frame)?.is_some_and(|packet| wanted(&packet));
            if again.is_empty() && is_wanted {
                again = capture[end..end + whole].to_vec();
            }
            end += whole;
            Ok(())
        })
        .expect("whole frames");
        assert!(!again.is_empty(), "no such frame");
        capture.extend(again);
        capture
    }

    #[test]
    fn the_definition_of_the_checksum() {
        assert_eq!(crc32(b"123456789".iter().copied()), 0xcbf4_3926);
    }

    #[test]
    fn every_packet_of_soft_roce_has_the_computed_icrc() {
        for (name, packets) in CAPTURES {
            let counts = counted(&capture(name));
            assert_eq!((counts.packets, counts.wrong.len()), (packets, 0), "{name}");
            assert!(counts.messages >= 3 && counts.requests.iter().sum::<u64>() > 0);
        }
    }

    #[test]
    fn a_changed_byte_is_a_wrong_icrc() {
        for (name, _) in CAPTURES {
            let twin = with_a_changed_byte(capture(name)).expect("an acknowledgement");
            let counts = counted(&twin);
            assert_eq!(counts.wrong, [counts.packets], "{name}");
        }
    }

    #[test]
    fn a_repeated_packet_is_counted() {
        let (name, _) = CAPTURES[1];
        let before = counted(&capture(name));
        assert_eq!(before.repeated, [0, 0]);
        for opcode in [0x04, 0x0a, READ_REQUEST] {
            let again = counted(&with_again(capture(name), |packet| {
                packet.byte(0) == opcode
            }));
            assert_eq!(again.repeated.iter().sum::<u64>(), 1, "opcode {opcode:#x}");
            assert_eq!(again.messages_repeated, before.messages_repeated);
        }
        let again = counted(&with_again(capture(name), |packet| {
            packet.byte(0) == SEND_ONLY_OF_DATAGRAMS
        }));
        assert_eq!(again.messages_repeated, before.messages_repeated + 1);
        assert_eq!(again.repeated, before.repeated);
    }

    #[test]
    fn a_datagram_of_a_program_is_no_message() {
        const HEADERS: usize = RECORD_HEADER + 14 + 40 + 8;
        let (name, _) = CAPTURES[1];
        let mut again = with_again(capture(name), |packet| {
            packet.byte(0) == SEND_ONLY_OF_DATAGRAMS
        });
        again[capture(name).len() + HEADERS + 7] = 9;
        assert_eq!(counted(&again).messages, counted(&capture(name)).messages);
    }

    #[test]
    fn an_incomplete_capture_is_refused() {
        let mut cut = capture(CAPTURES[1].0);
        cut.truncate(cut.len() - 1);
        assert!(each_frame(cut.as_slice(), |_| Ok(())).is_err());
        assert!(each_frame(&[0; 24][..], |_| Ok(())).is_err());
        assert!(with_a_changed_byte(capture(CAPTURES[1].0)[..FILE_HEADER].to_vec()).is_err());
    }
}
