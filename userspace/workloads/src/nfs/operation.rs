//! One RPC of a load: its arguments, and whether its result is what it has to be.
//!
//! Model: a request succeeds if the server executed it, the status is the expected one (a lookup of a
//! name that does not exist must fail) and the result holds what was asked for: a read that brings
//! fewer bytes than the file has is an error, not a fast operation.

use std::time::Instant;

use nfs3_types::{
    nfs3::{
        ACCESS3_EXECUTE, ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, ACCESS3args,
        ACCESS3res, COMMIT3args, COMMIT3res, CREATE3args, CREATE3res, FSINFO3args, FSINFO3res, FSSTAT3args,
        FSSTAT3res, GETATTR3args, GETATTR3res, LOOKUP3args, LOOKUP3res, Nfs3Option, Nfs3Result, READ3args,
        READ3res, READDIR3args, READDIR3res, READDIRPLUS3args, READDIRPLUS3res, READLINK3args, READLINK3res,
        REMOVE3args, REMOVE3res, SETATTR3args, SETATTR3res, WRITE3args, WRITE3res, cookieverf3, createhow3,
        diropargs3, filename3, nfs_fh3, nfsstat3, sattr3, set_mtime, stable_how,
    },
    xdr_codec::{Opaque, Pack, Unpack, Void},
};

use super::{
    client::{CallError, Client},
    procedure::Procedure,
    sizes::BLOCK,
};

/// What writes bring.
static PATTERN: [u8; BLOCK as usize] = pattern();

/// One RPC.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Null,
    Getattr {
        object: nfs_fh3,
    },
    /// Cuts a file to the size, or only sets its time.
    Setattr {
        object: nfs_fh3,
        size: Option<u64>,
    },
    Lookup {
        directory: nfs_fh3,
        name: String,
        exists: bool,
    },
    Access {
        object: nfs_fh3,
    },
    Readlink {
        link: nfs_fh3,
    },
    Read {
        file: nfs_fh3,
        offset: u64,
        count: u32,
        expected: u32,
    },
    Write {
        file: nfs_fh3,
        offset: u64,
        count: u32,
        stable: stable_how,
    },
    Create {
        directory: nfs_fh3,
        name: String,
    },
    Remove {
        directory: nfs_fh3,
        name: String,
        exists: bool,
    },
    Readdir {
        directory: nfs_fh3,
    },
    Readdirplus {
        directory: nfs_fh3,
    },
    Fsstat {
        root: nfs_fh3,
    },
    Fsinfo {
        root: nfs_fh3,
    },
    Commit {
        file: nfs_fh3,
    },
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// There was no result.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The result says so.
    #[error("{0}")]
    Status(nfsstat3),
    /// A name that must not exist was found.
    #[error("a name that does not exist was found")]
    Unexpected,
    /// A transfer is incomplete.
    #[error("{done} of {asked} bytes")]
    Incomplete { done: u32, asked: u32 },
}

impl Failure {
    /// Whether the server executed the call, and failed.
    pub(super) fn is_answer(&self) -> bool {
        !matches!(self, Self::Call(_))
    }

    /// Its key in records.
    pub(super) fn kind(&self) -> String {
        match self {
            Self::Call(CallError::Connect { .. }) => "cannot connect".into(),
            Self::Call(CallError::Lost { .. }) => "connection lost".into(),
            Self::Call(CallError::TimedOut { .. }) => "timed out".into(),
            Self::Call(CallError::Refused { .. }) => "call refused".into(),
            Self::Call(CallError::Garbled { .. } | CallError::Trailing { .. } | CallError::TooLong(_)) => {
                "protocol error".into()
            }
            Self::Status(status) => status.to_string(),
            Self::Unexpected => "unexpected name".into(),
            Self::Incomplete { .. } => "incomplete transfer".into(),
        }
    }
}

/// A result as a status and what success brings.
pub(super) trait Answered {
    type Done;
    fn answered(self) -> Result<Self::Done, nfsstat3>;
}

impl<T, E> Answered for Nfs3Result<T, E> {
    type Done = T;

    fn answered(self) -> Result<T, nfsstat3> {
        match self {
            Self::Ok(done) => Ok(done),
            Self::Err((status, _)) => Err(status),
        }
    }
}

/// Calls, and returns what success brings and when it came.
pub(super) async fn call<R: Unpack + Answered>(
    client: &Client,
    procedure: Procedure,
    arguments: &impl Pack,
) -> Result<(R::Done, Instant), Failure> {
    let reply = client.nfs::<R>(procedure, arguments).await?;
    let at = reply.at;
    reply
        .result
        .answered()
        .map(|done| (done, at))
        .map_err(Failure::Status)
}

impl Request {
    pub(super) fn procedure(&self) -> Procedure {
        match self {
            Self::Null => Procedure::Null,
            Self::Getattr { .. } => Procedure::Getattr,
            Self::Setattr { .. } => Procedure::Setattr,
            Self::Lookup { .. } => Procedure::Lookup,
            Self::Access { .. } => Procedure::Access,
            Self::Readlink { .. } => Procedure::Readlink,
            Self::Read { .. } => Procedure::Read,
            Self::Write { .. } => Procedure::Write,
            Self::Create { .. } => Procedure::Create,
            Self::Remove { .. } => Procedure::Remove,
            Self::Readdir { .. } => Procedure::Readdir,
            Self::Readdirplus { .. } => Procedure::Readdirplus,
            Self::Fsstat { .. } => Procedure::Fsstat,
            Self::Fsinfo { .. } => Procedure::Fsinfo,
            Self::Commit { .. } => Procedure::Commit,
        }
    }

    /// Executes it, and returns when its reply came.
    pub(super) async fn execute(self, client: &Client) -> Result<Instant, Failure> {
        let procedure = self.procedure();
        match self {
            Self::Null => Ok(client.nfs::<Void>(procedure, &Void).await?.at),
            Self::Getattr { object } => {
                plain::<GETATTR3res>(client, procedure, &GETATTR3args { object }).await
            }
            Self::Setattr { object, size } => {
                let size = size.map_or(Nfs3Option::None, Nfs3Option::Some);
                let new_attributes = sattr3 {
                    size,
                    mtime: set_mtime::SET_TO_SERVER_TIME,
                    ..sattr3::default()
                };
                let arguments = SETATTR3args {
                    object,
                    new_attributes,
                    guard: Nfs3Option::None,
                };
                plain::<SETATTR3res>(client, procedure, &arguments).await
            }
            Self::Lookup {
                directory,
                name,
                exists,
            } => {
                let arguments = LOOKUP3args {
                    what: place(directory, &name),
                };
                found(client.nfs::<LOOKUP3res>(procedure, &arguments).await?, exists)
            }
            Self::Access { object } => {
                let access =
                    ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND | ACCESS3_EXECUTE;
                plain::<ACCESS3res>(client, procedure, &ACCESS3args { object, access }).await
            }
            Self::Readlink { link } => {
                plain::<READLINK3res<'_>>(client, procedure, &READLINK3args { symlink: link }).await
            }
            Self::Read {
                file,
                offset,
                count,
                expected,
            } => {
                let arguments = READ3args { file, offset, count };
                let (done, at) = call::<READ3res<'_>>(client, procedure, &arguments).await?;
                let brought = done.data.len() as u32;
                if brought < expected {
                    return Err(Failure::Incomplete {
                        done: brought,
                        asked: count,
                    });
                }
                Ok(at)
            }
            Self::Write {
                file,
                offset,
                count,
                stable,
            } => {
                let data = Opaque::borrowed(&PATTERN[..count as usize]);
                let arguments = WRITE3args {
                    file,
                    offset,
                    count,
                    stable,
                    data,
                };
                let (done, at) = call::<WRITE3res>(client, procedure, &arguments).await?;
                if done.count < count {
                    return Err(Failure::Incomplete {
                        done: done.count,
                        asked: count,
                    });
                }
                Ok(at)
            }
            Self::Create { directory, name } => {
                let how = createhow3::GUARDED(sattr3 {
                    mode: Nfs3Option::Some(0o644),
                    ..sattr3::default()
                });
                let arguments = CREATE3args {
                    where_: place(directory, &name),
                    how,
                };
                plain::<CREATE3res>(client, procedure, &arguments).await
            }
            Self::Remove {
                directory,
                name,
                exists,
            } => {
                let arguments = REMOVE3args {
                    object: place(directory, &name),
                };
                found(client.nfs::<REMOVE3res>(procedure, &arguments).await?, exists)
            }
            Self::Readdir { directory } => {
                let arguments = READDIR3args {
                    dir: directory,
                    cookie: 0,
                    cookieverf: cookieverf3::default(),
                    count: BLOCK,
                };
                plain::<READDIR3res<'_>>(client, procedure, &arguments).await
            }
            Self::Readdirplus { directory } => {
                let arguments = READDIRPLUS3args {
                    dir: directory,
                    cookie: 0,
                    cookieverf: cookieverf3::default(),
                    dircount: BLOCK,
                    maxcount: BLOCK,
                };
                plain::<READDIRPLUS3res<'_>>(client, procedure, &arguments).await
            }
            Self::Fsstat { root } => {
                plain::<FSSTAT3res>(client, procedure, &FSSTAT3args { fsroot: root }).await
            }
            Self::Fsinfo { root } => {
                plain::<FSINFO3res>(client, procedure, &FSINFO3args { fsroot: root }).await
            }
            Self::Commit { file } => {
                plain::<COMMIT3res>(
                    client,
                    procedure,
                    &COMMIT3args {
                        file,
                        offset: 0,
                        count: 0,
                    },
                )
                .await
            }
        }
    }
}

async fn plain<R: Unpack + Answered>(
    client: &Client,
    procedure: Procedure,
    arguments: &impl Pack,
) -> Result<Instant, Failure> {
    call::<R>(client, procedure, arguments).await.map(|(_, at)| at)
}

/// A name was there if it had to be.
fn found<R: Answered>(reply: super::client::Reply<R>, exists: bool) -> Result<Instant, Failure> {
    match (reply.result.answered(), exists) {
        (Ok(_), true) | (Err(nfsstat3::NFS3ERR_NOENT), false) => Ok(reply.at),
        (Ok(_), false) => Err(Failure::Unexpected),
        (Err(status), _) => Err(Failure::Status(status)),
    }
}

pub(super) fn place(dir: nfs_fh3, name: &str) -> diropargs3<'_> {
    diropargs3 {
        dir,
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

/// Bytes that neither compress to nothing nor look like anything.
const fn pattern() -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    let mut state = 1_u32;
    let mut index = 0;
    while index < bytes.len() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        bytes[index] = (state >> 24) as u8;
        index += 1;
    }
    bytes
}
