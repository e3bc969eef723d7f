//! The token: a secret that a server shares with its clients.
//!
//! A connection request without a proof is rejected with a challenge. Its client connects again
//! with an HMAC-SHA-256 of the challenge and the request. The server lends no memory and reserves
//! no session before the proof is verified. The token itself is never sent. The proof admits a
//! connection; the later traffic is neither encrypted nor authenticated.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use hmac_sha256::HMAC;

use super::protocol::{Challenge, Proof, Refusal, Request};
use crate::failure::{Failure, Result};

/// Maximum number of unanswered challenges; the oldest is dropped first.
const UNANSWERED: usize = 64;
/// Minimum length of a token in bytes.
///
/// An eavesdropper could find a shorter one by trial.
const SHORTEST: usize = 16;

/// A secret of both sides.
pub(crate) struct Token(HMAC);

impl Token {
    /// Reads a token from a file, without the white space at its end.
    ///
    /// # Errors
    /// - File: the file cannot be read.
    /// - Usage: the token has fewer than 16 bytes.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).map_err(|error| Failure::file("read", path, &error))?;
        Self::new(bytes.trim_ascii_end()).ok_or_else(|| {
            Failure::usage(
                format!("{} does not contain a token", path.display()),
                format!("a token needs at least {SHORTEST} bytes"),
                "create one with `head -c 32 /dev/urandom | base64`, and copy it to both hosts",
            )
        })
    }

    pub(crate) fn new(bytes: &[u8]) -> Option<Self> {
        let long_enough = bytes.len() >= SHORTEST;
        long_enough.then(|| Self(HMAC::new(bytes)))
    }

    fn mac(&self, challenge: &Challenge, request: &Request) -> HMAC {
        let mut mac = self.0.clone();
        mac.update(challenge);
        mac.update(request.encode(None));
        mac
    }

    /// Computes the answer to a server's challenge.
    pub(crate) fn prove(&self, challenge: &Challenge, request: &Request) -> Proof {
        let tag = self.mac(challenge, request).finalize();
        let mut proof = Proof::default();
        for (to, from) in proof.iter_mut().zip(tag) {
            *to = from;
        }
        proof
    }

    /// Verifies a proof in constant time.
    fn proves(&self, challenge: &Challenge, request: &Request, proof: &Proof) -> bool {
        let mac = self.mac(challenge, request);
        // The proof is the first half of the tag; the other half is the right one.
        let mut expected = mac.clone().finalize();
        for (to, from) in expected.iter_mut().zip(proof) {
            *to = *from;
        }
        mac.finalize_verify(&expected)
    }
}

/// Admits clients that have the token.
pub(crate) struct Guard {
    token: Token,
    challenges: VecDeque<Challenge>,
}

impl Guard {
    pub(crate) fn new(token: Token) -> Self {
        Self {
            token,
            challenges: VecDeque::new(),
        }
    }

    /// Admits a request with a proof; each challenge is valid for one proof.
    ///
    /// # Errors
    /// - `NoToken`, with a new challenge: the request has no proof.
    /// - `WrongToken`: the proof answers no open challenge.
    /// - `Busy`: the system has no random numbers.
    pub(crate) fn admit(
        &mut self,
        request: &Request,
        proof: Option<&Proof>,
    ) -> std::result::Result<(), (Refusal, Option<Challenge>)> {
        let Some(proof) = proof else {
            let mut challenge = Challenge::default();
            getrandom::fill(&mut challenge).map_err(|_| (Refusal::Busy, None))?;
            if self.challenges.len() == UNANSWERED {
                self.challenges.pop_front();
            }
            self.challenges.push_back(challenge);
            return Err((Refusal::NoToken, Some(challenge)));
        };
        let answered = |challenge: &Challenge| self.token.proves(challenge, request, proof);
        let position = self.challenges.iter().position(answered);
        position
            .and_then(|position| self.challenges.remove(position))
            .map(|_| ())
            .ok_or((Refusal::WrongToken, None))
    }
}

#[cfg(test)]
mod tests {
    use super::super::protocol::Work;
    use super::*;

    const REQUEST: Request = Request {
        work: Work::Write,
        depth: 2,
        size: 8,
    };

    fn token(word: &str) -> Token {
        Token::new(word.as_bytes()).unwrap()
    }

    fn challenge(guard: &mut Guard) -> Challenge {
        match guard.admit(&REQUEST, None) {
            Err((Refusal::NoToken, Some(challenge))) => challenge,
            other => panic!("{other:?}"),
        }
    }

    /// A proof is valid once, for its challenge, its request and its token.
    #[test]
    fn a_proof_is_valid_once() {
        let (ours, other) = (token("sixteen bytes it"), token("sixteen bytes is"));
        let mut guard = Guard::new(token("sixteen bytes it"));
        let (first, second) = (challenge(&mut guard), challenge(&mut guard));
        assert_ne!(first, second);
        let larger = Request { size: 9, ..REQUEST };
        let wrong = Err((Refusal::WrongToken, None));
        for (proof, request) in [
            (ours.prove(&first, &REQUEST), larger),
            (other.prove(&first, &REQUEST), REQUEST),
            (ours.prove(&[0; 16], &REQUEST), REQUEST),
            ([0; 16], REQUEST),
        ] {
            assert_eq!(guard.admit(&request, Some(&proof)), wrong);
        }
        let proof = ours.prove(&second, &REQUEST);
        assert_eq!(guard.admit(&REQUEST, Some(&proof)), Ok(()));
        assert_eq!(guard.admit(&REQUEST, Some(&proof)), wrong);
        let proof = ours.prove(&first, &REQUEST);
        assert_eq!(guard.admit(&REQUEST, Some(&proof)), Ok(()));
    }

    /// The tag is that of HMAC-SHA-256 (RFC 4231, test case 7), whichever library computes it.
    #[test]
    fn a_tag_is_the_standard_one() {
        let mut mac = HMAC::new([0xaa; 131]);
        mac.update("This is a test using a larger than block-size key and a larger than ");
        mac.update(
            "block-size data. The key needs to be hashed before being used by the HMAC algorithm.",
        );
        let begin = [0x9b, 0x09, 0xff, 0xa7, 0x1b, 0x94, 0x2f, 0xcb];
        assert!(mac.finalize().starts_with(&begin));
    }

    /// The oldest challenge is dropped when the table is full.
    #[test]
    fn the_oldest_challenge_is_dropped_first() {
        let ours = token("sixteen bytes it");
        let mut guard = Guard::new(token("sixteen bytes it"));
        let first = challenge(&mut guard);
        let second = challenge(&mut guard);
        for _ in 0..UNANSWERED - 1 {
            challenge(&mut guard);
        }
        assert_eq!(guard.challenges.len(), UNANSWERED);
        let late = ours.prove(&first, &REQUEST);
        let refused = guard.admit(&REQUEST, Some(&late));
        assert_eq!(refused, Err((Refusal::WrongToken, None)));
        let proof = ours.prove(&second, &REQUEST);
        assert_eq!(guard.admit(&REQUEST, Some(&proof)), Ok(()));
    }

    #[test]
    fn tokens_are_long_enough_and_one_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let read = |content: &str| {
            fs::write(&path, content).unwrap();
            Token::read(&path)
        };
        assert!(read("fifteen bytes..\n").is_err());
        assert!(read("").is_err());
        let (line, plain) = (
            read("sixteen bytes it\n").ok().unwrap(),
            token("sixteen bytes it"),
        );
        let prove = |token: &Token| token.prove(&[1; 16], &REQUEST);
        assert_eq!(prove(&line), prove(&plain));
        assert!(Token::read(&folder.path().join("none")).is_err());
    }
}
