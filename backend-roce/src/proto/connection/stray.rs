//! Answers to messages that belong to no connection.

use super::answer::{Answered, Ids, Information, Reason, Reject};
use super::message::{Mad, Message};
use super::private_data::PrivateData;
use super::request::ConnectRequest;

/// Refuses a REQ: nobody listens, or there is no room (ROCE-173, ROCE-174).
///
/// With [`Reason::INVALID_MTU`], `information` names the path MTU that can be carried (ROCE-177).
pub const fn refuse(
    transaction: u64,
    request: &ConnectRequest,
    reason: Reason,
    information: Information,
) -> Mad {
    let ids = Ids {
        local: 0,
        remote: request.local_id,
    };
    reject(transaction, ids, Answered::Request, reason, information)
}

/// Answers a message of an unknown connection (ROCE-172); `None` if it needs no answer.
pub const fn answer_unknown(mad: &Mad) -> Option<Mad> {
    let transaction = mad.transaction;
    match &mad.message {
        Message::DisconnectRequest { ids, .. } => Some(Mad {
            transaction,
            message: Message::DisconnectReply(reversed(*ids)),
        }),
        Message::Reply(reply) => {
            let ids = reversed(reply.ids);
            let (answered, reason) = (Answered::Reply, Reason::INVALID_ID);
            Some(reject(
                transaction,
                ids,
                answered,
                reason,
                Information::None,
            ))
        }
        _ => None,
    }
}

const fn reversed(ids: Ids) -> Ids {
    Ids {
        local: ids.remote,
        remote: ids.local,
    }
}

const fn reject(
    transaction: u64,
    ids: Ids,
    answered: Answered,
    reason: Reason,
    information: Information,
) -> Mad {
    let reject = Reject {
        ids,
        answered,
        reason,
        information,
        private_data: PrivateData::NONE,
    };
    Mad {
        transaction,
        message: Message::Reject(reject),
    }
}
