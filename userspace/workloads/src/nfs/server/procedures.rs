//! The procedures: arguments from the wire, the file system, results to the wire.
//!
//! Model: one function from a procedure and its arguments to an encoded result, plus what the request
//! touched, for the service model and the tally. Status codes are RFC 1813's. Attributes after the
//! operation are always sent, those before it never (they are optional there).

mod listings;
mod names;

use nfs3_types::{
    nfs3::{
        ACCESS3resok, COMMIT3resok, GETATTR3resok, Nfs3Option, READ3resok, READLINK3resok, SETATTR3resok,
        WRITE3resok, nfspath3, nfsstat3, nfstime3, post_op_attr, sattr3, set_atime, set_mtime, stable_how,
        wcc_data, writeverf3,
    },
    xdr_codec::{Opaque, Pack, Void},
};

use super::{
    memory::{FileSystem, Number, Status},
    service::{CACHE_BLOCK, Touch},
};
use crate::nfs::{
    procedure::Procedure,
    xdr::{Reader, XdrError},
};

/// Largest READ and WRITE; a reply with it fits into a UDP datagram.
pub(super) const TRANSFER_LIMIT: u32 = 32 * 1024;
const HANDLE_LIMIT: usize = 64;
/// Longest target of a symbolic link.
const PATH_LIMIT: usize = 1024;

/// What became of a request.
pub(super) struct Executed {
    pub(super) touch: Option<Touch>,
    /// Bytes asked for or brought by READ and WRITE.
    pub(super) transfer: Option<u32>,
    pub(super) failed: bool,
}

/// Why a request was not executed.
pub(super) enum Unexecuted {
    Garbage,
    Unavailable,
}

impl From<XdrError> for Unexecuted {
    fn from(_: XdrError) -> Self {
        Self::Garbage
    }
}

/// Executes a procedure and appends its encoded result.
pub(super) fn execute(
    fs: &mut FileSystem,
    procedure: Procedure,
    mut arguments: Reader<'_>,
    out: &mut Vec<u8>,
) -> Result<Executed, Unexecuted> {
    let arguments = &mut arguments;
    let mut request = Request {
        fs,
        out,
        touch: None,
        transfer: None,
        failed: false,
    };
    match procedure {
        Procedure::Null => {}
        Procedure::Getattr => request.getattr(arguments)?,
        Procedure::Setattr => request.setattr(arguments)?,
        Procedure::Lookup => request.lookup(arguments)?,
        Procedure::Access => request.access(arguments)?,
        Procedure::Readlink => request.readlink(arguments)?,
        Procedure::Read => request.read(arguments)?,
        Procedure::Write => request.write(arguments)?,
        Procedure::Create => request.create(arguments)?,
        Procedure::Mkdir => request.mkdir(arguments)?,
        Procedure::Symlink => request.symlink(arguments)?,
        Procedure::Remove => request.remove(arguments)?,
        Procedure::Rmdir => request.rmdir(arguments)?,
        Procedure::Rename => request.rename(arguments)?,
        Procedure::Readdir => request.readdir(arguments)?,
        Procedure::Readdirplus => request.readdirplus(arguments)?,
        Procedure::Fsstat => request.fsstat(arguments)?,
        Procedure::Fsinfo => request.fsinfo(arguments)?,
        Procedure::Pathconf => request.pathconf(arguments)?,
        Procedure::Commit => request.commit(arguments)?,
        Procedure::Mknod | Procedure::Link => return Err(Unexecuted::Unavailable),
    }
    let Request {
        touch,
        transfer,
        failed,
        ..
    } = request;
    Ok(Executed {
        touch,
        transfer,
        failed,
    })
}

struct Request<'a> {
    fs: &'a mut FileSystem,
    out: &'a mut Vec<u8>,
    touch: Option<Touch>,
    transfer: Option<u32>,
    failed: bool,
}

impl Request<'_> {
    fn getattr(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let result = object
            .and_then(|number| self.fs.attributes(number))
            .map(|obj_attributes| GETATTR3resok { obj_attributes });
        match result {
            Ok(done) => self.put(&nfsstat3::NFS3_OK, &done),
            Err(status) => self.fail(status, &Void),
        }
        Ok(())
    }

    fn setattr(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let new = attributes(arguments)?;
        let guard = arguments.bool()?.then(|| time(arguments)).transpose()?;
        let result = object.and_then(|number| {
            if guard.is_some() && guard != Some(self.fs.attributes(number)?.ctime) {
                return Err(nfsstat3::NFS3ERR_NOT_SYNC);
            }
            self.fs.set_attributes(number, &new)
        });
        self.changing();
        let obj_wcc = self.wcc(object);
        self.answer(result, |()| SETATTR3resok { obj_wcc }, &self.wcc(object));
        Ok(())
    }

    fn access(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let access = arguments.u32()?;
        let obj_attributes = self.after(object);
        self.answer(
            object,
            |_| ACCESS3resok {
                obj_attributes: obj_attributes.clone(),
                access: access & 0x3f,
            },
            &obj_attributes,
        );
        Ok(())
    }

    fn readlink(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let symlink_attributes = self.after(object);
        let target = object.and_then(|number| self.fs.target(number).map(<[u8]>::to_vec));
        self.answer(
            target,
            |target| READLINK3resok {
                symlink_attributes: symlink_attributes.clone(),
                data: nfspath3(Opaque::owned(target)),
            },
            &symlink_attributes,
        );
        Ok(())
    }

    fn read(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let (offset, count) = (arguments.u64()?, arguments.u32()?);
        self.transferring(offset, count, false);
        let data = object.and_then(|number| {
            let (data, eof) = self.fs.read(number, offset, count.min(TRANSFER_LIMIT) as usize)?;
            Ok((data, eof))
        });
        let file_attributes = self.after(object);
        self.answer(
            data,
            |(data, eof)| READ3resok {
                file_attributes: file_attributes.clone(),
                count: data.len() as u32,
                eof,
                data: Opaque::owned(data),
            },
            &file_attributes,
        );
        Ok(())
    }

    fn write(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let (offset, count) = (arguments.u64()?, arguments.u32()?);
        let committed = match arguments.u32()? {
            0 => stable_how::UNSTABLE,
            1 => stable_how::DATA_SYNC,
            2 => stable_how::FILE_SYNC,
            other => return Err(XdrError::Value(other)),
        };
        let data = arguments.opaque(TRANSFER_LIMIT as usize)?;
        self.transferring(offset, count, true);
        let written = object.and_then(|number| {
            if data.len() != count as usize {
                return Err(nfsstat3::NFS3ERR_INVAL);
            }
            self.fs.write(number, offset, data)
        });
        let verf = writeverf3(self.fs.instance());
        let file_wcc = self.wcc(object);
        self.answer(
            written,
            |()| WRITE3resok {
                file_wcc,
                count,
                committed,
                verf,
            },
            &self.wcc(object),
        );
        Ok(())
    }

    fn commit(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let _whole_file = (arguments.u64()?, arguments.u32()?);
        self.changing();
        let verf = writeverf3(self.fs.instance());
        let file_wcc = self.wcc(object);
        self.answer(object, |_| COMMIT3resok { file_wcc, verf }, &self.wcc(object));
        Ok(())
    }

    // Arguments.

    fn object(&mut self, arguments: &mut Reader<'_>) -> Result<Status<Number>, XdrError> {
        let handle = arguments.opaque(HANDLE_LIMIT)?;
        let number = self.fs.number(handle);
        if let Ok(number) = number {
            self.touched(number);
        }
        Ok(number)
    }

    fn place<'b>(&mut self, arguments: &mut Reader<'b>) -> Result<(Status<Number>, &'b [u8]), XdrError> {
        let directory = self.object(arguments)?;
        // Longer names are the file system's to refuse; no message holds more than this.
        let name = arguments.opaque(4096)?;
        Ok((directory, name))
    }

    // Results.

    fn touched(&mut self, object: Number) {
        self.touch = Some(Touch {
            object,
            blocks: None,
            writes: false,
        });
    }

    fn changing(&mut self) {
        if let Some(touch) = &mut self.touch {
            touch.writes = true;
        }
    }

    fn transferring(&mut self, offset: u64, count: u32, writes: bool) {
        self.transfer = Some(count);
        if let Some(touch) = &mut self.touch {
            let last = offset.saturating_add(u64::from(count.clamp(1, TRANSFER_LIMIT)) - 1);
            touch.blocks = Some((offset / CACHE_BLOCK, last / CACHE_BLOCK));
            touch.writes = writes;
        }
    }

    fn after(&self, number: Status<Number>) -> post_op_attr {
        match number.and_then(|number| self.fs.attributes(number)) {
            Ok(attributes) => Nfs3Option::Some(attributes),
            Err(_) => Nfs3Option::None,
        }
    }

    fn wcc(&self, number: Status<Number>) -> wcc_data {
        wcc_data {
            before: Nfs3Option::None,
            after: self.after(number),
        }
    }

    /// The result of success, or the status with what its failure carries.
    fn answer<T, R: Pack>(&mut self, result: Status<T>, done: impl FnOnce(T) -> R, failure: &impl Pack) {
        match result {
            Ok(value) => {
                let done = done(value);
                self.put(&nfsstat3::NFS3_OK, &done);
            }
            Err(status) => self.fail(status, failure),
        }
    }

    fn put(&mut self, status: &nfsstat3, result: &impl Pack) {
        // Packing fails where writing does, and a vector takes everything.
        let packed = status.pack(self.out).and_then(|_| result.pack(self.out));
        debug_assert!(packed.is_ok(), "{packed:?}");
    }

    fn fail(&mut self, status: nfsstat3, failure: &impl Pack) {
        self.failed = true;
        self.put(&status, failure);
    }
}

fn attributes(arguments: &mut Reader<'_>) -> Result<sattr3, XdrError> {
    let number = |arguments: &mut Reader<'_>| -> Result<Nfs3Option<u32>, XdrError> {
        Ok(if arguments.bool()? {
            Nfs3Option::Some(arguments.u32()?)
        } else {
            Nfs3Option::None
        })
    };
    Ok(sattr3 {
        mode: number(arguments)?,
        uid: number(arguments)?,
        gid: number(arguments)?,
        size: if arguments.bool()? {
            Nfs3Option::Some(arguments.u64()?)
        } else {
            Nfs3Option::None
        },
        atime: match arguments.u32()? {
            0 => set_atime::DONT_CHANGE,
            1 => set_atime::SET_TO_SERVER_TIME,
            2 => set_atime::SET_TO_CLIENT_TIME(time(arguments)?),
            other => return Err(XdrError::Value(other)),
        },
        mtime: match arguments.u32()? {
            0 => set_mtime::DONT_CHANGE,
            1 => set_mtime::SET_TO_SERVER_TIME,
            2 => set_mtime::SET_TO_CLIENT_TIME(time(arguments)?),
            other => return Err(XdrError::Value(other)),
        },
    })
}

fn time(arguments: &mut Reader<'_>) -> Result<nfstime3, XdrError> {
    Ok(nfstime3 {
        seconds: arguments.u32()?,
        nseconds: arguments.u32()?,
    })
}
