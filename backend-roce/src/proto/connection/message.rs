//! The messages of connection management.

use super::answer::{ConnectReply, Ids, Receipt, Reject};
use super::mad::{Attribute, MAD_LENGTH};
use super::request::ConnectRequest;
use crate::proto::bytes::{Reader, Writer};

/// First bytes of the private data of a DREQ after a broken connection (ROCE-181).
const BROKEN: [u8; 8] = *b"DATbroke";

/// A message of connection management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// REQ.
    Request(ConnectRequest),
    /// MRA.
    Receipt(Receipt),
    /// REJ.
    Reject(Reject),
    /// REP.
    Reply(ConnectReply),
    /// RTU.
    Ready(Ids),
    /// DREQ.
    DisconnectRequest {
        /// Communication ids.
        ids: Ids,
        /// QPN of the receiver of the message.
        qpn: u32,
        /// Set if the connection broke at the sender (ROCE-181).
        broken: bool,
    },
    /// DREP.
    DisconnectReply(Ids),
}

/// A message with its transaction id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mad {
    /// Chosen by the sender of a REQ or DREQ; answers repeat it (ROCE-143).
    pub transaction: u64,
    /// The message.
    pub message: Message,
}

impl Mad {
    /// Returns the bytes of the MAD.
    pub fn encode(&self) -> [u8; MAD_LENGTH] {
        let mut bytes = [0; MAD_LENGTH];
        // The room of each message is a constant that its encoding does not exceed.
        let _ = self.write(&mut Writer::new(&mut bytes));
        bytes
    }

    fn write(&self, writer: &mut Writer<'_>) -> Option<()> {
        let attribute = match self.message {
            Message::Request(_) => Attribute::Request,
            Message::Receipt(_) => Attribute::Receipt,
            Message::Reject(_) => Attribute::Reject,
            Message::Reply(_) => Attribute::Reply,
            Message::Ready(_) => Attribute::Ready,
            Message::DisconnectRequest { .. } => Attribute::DisconnectRequest,
            Message::DisconnectReply(_) => Attribute::DisconnectReply,
        };
        attribute.encode(self.transaction, writer)?;
        match &self.message {
            Message::Request(request) => request.encode(writer),
            Message::Receipt(receipt) => receipt.encode(writer),
            Message::Reject(reject) => reject.encode(writer),
            Message::Reply(reply) => reply.encode(writer),
            Message::Ready(ids) | Message::DisconnectReply(ids) => ids.encode(writer),
            Message::DisconnectRequest { ids, qpn, broken } => {
                ids.encode(writer)?;
                writer.u24(*qpn)?;
                writer.u8(0)?;
                writer.put(if *broken { &BROKEN } else { &[0; 8] })
            }
        }
    }

    /// Reads a MAD; `None` if it is none of connection management, or not a valid one.
    pub fn decode(bytes: &[u8; MAD_LENGTH]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (attribute, transaction) = Attribute::decode(&mut reader)?;
        let reader = &mut reader;
        let message = match attribute {
            Attribute::Request => Message::Request(ConnectRequest::decode(reader)?),
            Attribute::Receipt => Message::Receipt(Receipt::decode(reader)?),
            Attribute::Reject => Message::Reject(Reject::decode(reader)?),
            Attribute::Reply => Message::Reply(ConnectReply::decode(reader)?),
            Attribute::Ready => Message::Ready(Ids::decode(reader)?),
            Attribute::DisconnectRequest => Message::DisconnectRequest {
                ids: Ids::decode(reader)?,
                qpn: reader.u24()?,
                broken: {
                    reader.skip(1)?;
                    reader.array()? == BROKEN
                },
            },
            Attribute::DisconnectReply => Message::DisconnectReply(Ids::decode(reader)?),
        };
        Some(Self {
            transaction,
            message,
        })
    }
}
