//! ONC RPC version 2 (RFC 5531): the headers of calls and replies, and record marking on TCP.
//!
//! Model: a message is a header and a body that the procedure gives meaning to. On TCP a message is a
//! record of one or more fragments, each with a 4-byte mark (length, and a bit on the last); on UDP a
//! datagram. Credentials are AUTH_SYS. A record has a greatest length, so a peer cannot make us
//! collect fragments without end.

use bytes::{Buf as _, Bytes, BytesMut};

use super::xdr::{Reader, XdrError};

pub(crate) const CALL: u32 = 0;
pub(crate) const REPLY: u32 = 1;
pub(crate) const RPC_VERSION: u32 = 2;
pub(crate) const AUTH_SYS: u32 = 1;
const LAST_FRAGMENT: u32 = 0x8000_0000;
/// Longest credential or verifier, RFC 5531 section 8.2.
const AUTH_LIMIT: usize = 400;

/// A program and its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its number.
    pub number: u32,
    pub version: u32,
}

/// NFS version 3.
pub(crate) const NFS: Program = Program {
    number: nfs3_types::nfs3::PROGRAM,
    version: nfs3_types::nfs3::VERSION,
};
/// The mount protocol that belongs to NFS version 3.
pub(crate) const MOUNT: Program = Program {
    number: nfs3_types::mount::PROGRAM,
    version: nfs3_types::mount::VERSION,
};
/// The port mapper.
pub(crate) const PORTMAP: Program = Program {
    number: nfs3_types::portmap::PROGRAM,
    version: nfs3_types::portmap::VERSION,
};

/// Why a server did not execute a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nobody serves the program at that port.
    #[error("the server does not serve this program; is it the right port?")]
    ProgramUnavailable,
    /// The program has other versions.
    #[error("the server speaks versions {low} to {high} of this program only")]
    ProgramMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The program lacks the procedure.
    #[error("the server lacks this procedure")]
    ProcedureUnavailable,
    /// The server could not read the arguments.
    #[error("the server could not decode the arguments")]
    GarbageArguments,
    /// The server failed in itself.
    #[error("the server had an internal error")]
    System,
    /// The server speaks another RPC version.
    #[error("the server speaks RPC versions {low} to {high} only")]
    RpcMismatch {
        /// Lowest version.
        low: u32,
        /// Highest version.
        high: u32,
    },
    /// The server does not believe the credentials.
    #[error(
        "the server refused the credentials (auth_stat {0}); if it wants a privileged source port, \
         export with `insecure` or run as root with --reserved-ports"
    )]
    Credentials(u32),
}

/// What a reply says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It was executed; the result begins at this offset.
    Done { body: usize },
    /// It was not.
    Refused(Refusal),
}

/// The header of a call.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) xid: u32,
    pub(crate) rpc_version: u32,
    pub(crate) program: Program,
    pub(crate) procedure: u32,
    pub(crate) arguments: Reader<'a>,
}

/// Why a stream of records cannot be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// A record grew beyond the limit.
    #[error("a record of more than {limit} bytes; the peer does not speak RPC, or not to us")]
    TooLong {
        /// The greatest length accepted.
        limit: usize,
    },
    /// The message in the record is no RPC message.
    #[error("not an RPC message")]
    Garbled(#[from] XdrError),
}

/// AUTH_SYS credentials and the empty verifier, ready to be copied into calls.
pub(crate) fn credentials(machine: &str, uid: u32, gid: u32) -> Vec<u8> {
    let name = &machine.as_bytes()[..machine.len().min(255)];
    let mut body = Vec::new();
    body.extend_from_slice(&0_u32.to_be_bytes());
    body.extend_from_slice(&(name.len() as u32).to_be_bytes());
    body.extend_from_slice(name);
    body.resize(body.len().next_multiple_of(4), 0);
    // No supplementary groups.
    for number in [uid, gid, 0] {
        body.extend_from_slice(&number.to_be_bytes());
    }
    let mut out = Vec::with_capacity(body.len() + 16);
    out.extend_from_slice(&AUTH_SYS.to_be_bytes());
    out.extend_from_slice(&(body.len() as u32).to_be_bytes());
    out.extend_from_slice(&body);
    out.extend_from_slice(&[0; 8]);
    out
}

/// Appends the header of a call.
pub(crate) fn put_call(out: &mut Vec<u8>, xid: u32, program: Program, procedure: u32, credentials: &[u8]) {
    for number in [xid, CALL, RPC_VERSION, program.number, program.version, procedure] {
        out.extend_from_slice(&number.to_be_bytes());
    }
    out.extend_from_slice(credentials);
}

/// Reads the header of a call.
pub(crate) fn call(message: &[u8]) -> Result<Call<'_>, XdrError> {
    let mut reader = Reader::new(message);
    let xid = reader.u32()?;
    match reader.u32()? {
        CALL => {}
        other => return Err(XdrError::Value(other)),
    }
    let rpc_version = reader.u32()?;
    let program = Program {
        number: reader.u32()?,
        version: reader.u32()?,
    };
    let procedure = reader.u32()?;
    for _ in ["credential", "verifier"] {
        reader.u32()?;
        reader.opaque(AUTH_LIMIT)?;
    }
    Ok(Call {
        xid,
        rpc_version,
        program,
        procedure,
        arguments: reader,
    })
}

/// Appends the header of a reply that carries a result, or says why there is none.
pub(crate) fn put_reply(out: &mut Vec<u8>, xid: u32, refused: Option<Refusal>) {
    let mut put = |numbers: &[u32]| {
        for number in numbers {
            out.extend_from_slice(&number.to_be_bytes());
        }
    };
    put(&[xid, REPLY]);
    // Accepted (0) with an empty verifier (flavor 0, length 0), or denied (1).
    match refused {
        None => put(&[0, 0, 0, 0]),
        Some(Refusal::ProgramUnavailable) => put(&[0, 0, 0, 1]),
        Some(Refusal::ProgramMismatch { low, high }) => put(&[0, 0, 0, 2, low, high]),
        Some(Refusal::ProcedureUnavailable) => put(&[0, 0, 0, 3]),
        Some(Refusal::GarbageArguments) => put(&[0, 0, 0, 4]),
        Some(Refusal::System) => put(&[0, 0, 0, 5]),
        Some(Refusal::RpcMismatch { low, high }) => put(&[1, 0, low, high]),
        Some(Refusal::Credentials(status)) => put(&[1, 1, status]),
    }
}

/// Reads the transaction identifier and the header of a reply.
pub(crate) fn reply(message: &[u8]) -> Result<(u32, Answer), XdrError> {
    let mut reader = Reader::new(message);
    let xid = reader.u32()?;
    match reader.u32()? {
        REPLY => {}
        other => return Err(XdrError::Value(other)),
    }
    let answer = match reader.u32()? {
        0 => {
            reader.u32()?;
            reader.opaque(AUTH_LIMIT)?;
            match reader.u32()? {
                0 => Answer::Done {
                    body: message.len() - reader.rest().len(),
                },
                1 => Answer::Refused(Refusal::ProgramUnavailable),
                2 => Answer::Refused(Refusal::ProgramMismatch {
                    low: reader.u32()?,
                    high: reader.u32()?,
                }),
                3 => Answer::Refused(Refusal::ProcedureUnavailable),
                4 => Answer::Refused(Refusal::GarbageArguments),
                5 => Answer::Refused(Refusal::System),
                other => return Err(XdrError::Value(other)),
            }
        }
        1 => match reader.u32()? {
            0 => Answer::Refused(Refusal::RpcMismatch {
                low: reader.u32()?,
                high: reader.u32()?,
            }),
            1 => Answer::Refused(Refusal::Credentials(reader.u32()?)),
            other => return Err(XdrError::Value(other)),
        },
        other => return Err(XdrError::Value(other)),
    };
    Ok((xid, answer))
}

/// Begins a record: leaves room for its mark and returns its place.
pub(crate) fn begin_record(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    start
}

/// Ends the record begun at `start`, as one last fragment.
pub(crate) fn end_record(out: &mut [u8], start: usize) {
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&(length | LAST_FRAGMENT).to_be_bytes());
}

/// Puts records together from a byte stream.
#[derive(Debug)]
pub(crate) struct Records {
    /// What was read and not yet given out; append to it.
    pub(crate) stream: BytesMut,
    /// Fragments of a record whose last one has not come.
    collected: BytesMut,
    limit: usize,
}

impl Records {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            stream: BytesMut::with_capacity(64 * 1024),
            collected: BytesMut::new(),
            limit,
        }
    }

    /// The next whole record, or `None` until more bytes come.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, RecordError> {
        while let Some(mark) = self.stream.first_chunk::<4>() {
            let mark = u32::from_be_bytes(*mark);
            let length = (mark & !LAST_FRAGMENT) as usize;
            if self.collected.len() + length > self.limit {
                return Err(RecordError::TooLong { limit: self.limit });
            }
            if self.stream.len() < 4 + length {
                self.stream.reserve(4 + length - self.stream.len());
                return Ok(None);
            }
            self.stream.advance(4);
            let fragment = self.stream.split_to(length);
            if mark & LAST_FRAGMENT == 0 {
                self.collected.extend_from_slice(&fragment);
            } else if self.collected.is_empty() {
                return Ok(Some(fragment.freeze()));
            } else {
                self.collected.extend_from_slice(&fragment);
                return Ok(Some(self.collected.split().freeze()));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_is_read_as_it_was_written() {
        let mut message = Vec::new();
        put_call(&mut message, 9, NFS, 6, &credentials("host", 1, 2));
        message.extend_from_slice(&77_u32.to_be_bytes());
        let mut call = call(&message).unwrap();
        assert_eq!(
            (call.xid, call.rpc_version, call.program, call.procedure),
            (9, 2, NFS, 6)
        );
        assert_eq!(call.arguments.u32(), Ok(77));
    }

    #[test]
    fn every_reply_is_read_as_it_was_written() {
        let refusals = [
            Refusal::ProgramUnavailable,
            Refusal::ProgramMismatch { low: 2, high: 4 },
            Refusal::ProcedureUnavailable,
            Refusal::GarbageArguments,
            Refusal::System,
            Refusal::RpcMismatch { low: 2, high: 2 },
            Refusal::Credentials(5),
        ];
        for refusal in refusals {
            let mut message = Vec::new();
            put_reply(&mut message, 3, Some(refusal));
            assert_eq!(reply(&message), Ok((3, Answer::Refused(refusal))));
        }
        let mut message = Vec::new();
        put_reply(&mut message, 3, None);
        message.push(42);
        assert_eq!(
            reply(&message),
            Ok((
                3,
                Answer::Done {
                    body: message.len() - 1
                }
            ))
        );
    }

    #[test]
    fn a_record_without_end_is_refused() {
        let mut records = Records::new(10);
        records
            .stream
            .extend_from_slice(&[0, 0, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 8]);
        assert_eq!(records.next(), Err(RecordError::TooLong { limit: 10 }));
    }

    proptest! {
        #[test]
        fn records_survive_any_fragmentation(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 1..8),
                                             cut in 1..40_usize, step in 1..20_usize) {
            let mut stream = Vec::new();
            for body in &bodies {
                let mut parts = body.chunks(cut).peekable();
                while let Some(part) = parts.next() {
                    let last = if parts.peek().is_none() { LAST_FRAGMENT } else { 0 };
                    stream.extend_from_slice(&(part.len() as u32 | last).to_be_bytes());
                    stream.extend_from_slice(part);
                }
            }
            let (mut records, mut seen) = (Records::new(1000), Vec::new());
            for part in stream.chunks(step) {
                records.stream.extend_from_slice(part);
                while let Some(record) = records.next().unwrap() {
                    seen.push(record.to_vec());
                }
            }
            prop_assert_eq!(seen, bodies);
        }

        #[test]
        fn garbage_never_panics(message in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = call(&message);
            let _ = reply(&message);
        }
    }
}
