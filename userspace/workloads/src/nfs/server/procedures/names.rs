//! Procedures on names: lookup, create, mkdir, symlink, remove, rmdir, rename.

use nfs3_types::nfs3::{
    CREATE3resok, LOOKUP3resok, MKDIR3resok, Nfs3Option, REMOVE3resok, RENAME3resfail, RENAME3resok,
    RMDIR3resok, SYMLINK3resok, nfsstat3, nfstime3, post_op_attr, post_op_fh3, sattr3, set_atime, wcc_data,
};

use super::{PATH_LIMIT, Request, attributes};
use crate::nfs::{
    server::memory::{Making, Number, Status},
    xdr::{Reader, XdrError},
};

impl Request<'_> {
    pub(super) fn lookup(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        let found = directory.and_then(|directory| self.fs.lookup(directory, name));
        let dir_attributes = self.after(directory);
        if let Ok(number) = found {
            self.touched(number);
        }
        let done = found.map(|number| LOOKUP3resok {
            object: self.fs.handle(number),
            obj_attributes: self.after(found),
            dir_attributes: dir_attributes.clone(),
        });
        self.answer(done, |done| done, &dir_attributes);
        Ok(())
    }

    pub(super) fn create(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        let (how, new) = match arguments.u32()? {
            how @ (0 | 1) => (how, attributes(arguments)?),
            2 => {
                // The verifier is kept in the times, as RFC 1813 section 3.3.8 proposes.
                let verifier = nfstime3 {
                    seconds: arguments.u32()?,
                    nseconds: arguments.u32()?,
                };
                let atime = set_atime::SET_TO_CLIENT_TIME(verifier);
                (
                    2,
                    sattr3 {
                        atime,
                        ..sattr3::default()
                    },
                )
            }
            other => return Err(XdrError::Value(other)),
        };
        let made = directory.and_then(|directory| {
            match self.fs.make(directory, name, &Making::File, &new) {
                Err(nfsstat3::NFS3ERR_EXIST) if how == 0 => {
                    let number = self.fs.lookup(directory, name)?;
                    // An existing file keeps everything but, if asked, its size.
                    let size = sattr3 {
                        size: new.size,
                        ..sattr3::default()
                    };
                    self.fs.set_attributes(number, &size)?;
                    Ok(number)
                }
                Err(nfsstat3::NFS3ERR_EXIST) if how == 2 => {
                    let number = self.fs.lookup(directory, name)?;
                    let set_atime::SET_TO_CLIENT_TIME(verifier) = new.atime else {
                        return Err(nfsstat3::NFS3ERR_EXIST);
                    };
                    let same = self.fs.attributes(number)?.atime == verifier;
                    if same {
                        Ok(number)
                    } else {
                        Err(nfsstat3::NFS3ERR_EXIST)
                    }
                }
                other => other,
            }
        });
        let (obj, obj_attributes, dir_wcc) = self.made(directory, made);
        let done = made.map(|_| CREATE3resok {
            obj,
            obj_attributes,
            dir_wcc,
        });
        self.answer(done, |done| done, &self.wcc(directory));
        Ok(())
    }

    pub(super) fn mkdir(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        let new = attributes(arguments)?;
        let made = directory.and_then(|directory| self.fs.make(directory, name, &Making::Directory, &new));
        let (obj, obj_attributes, dir_wcc) = self.made(directory, made);
        let done = made.map(|_| MKDIR3resok {
            obj,
            obj_attributes,
            dir_wcc,
        });
        self.answer(done, |done| done, &self.wcc(directory));
        Ok(())
    }

    pub(super) fn symlink(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        let new = attributes(arguments)?;
        let target = arguments.opaque(PATH_LIMIT)?;
        let made =
            directory.and_then(|directory| self.fs.make(directory, name, &Making::Symlink(target), &new));
        let (obj, obj_attributes, dir_wcc) = self.made(directory, made);
        let done = made.map(|_| SYMLINK3resok {
            obj,
            obj_attributes,
            dir_wcc,
        });
        self.answer(done, |done| done, &self.wcc(directory));
        Ok(())
    }

    pub(super) fn remove(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        self.changing();
        let removed = directory.and_then(|directory| self.fs.remove(directory, name, false));
        let dir_wcc = self.wcc(directory);
        self.answer(removed, |()| REMOVE3resok { dir_wcc }, &self.wcc(directory));
        Ok(())
    }

    pub(super) fn rmdir(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (directory, name) = self.place(arguments)?;
        self.changing();
        let removed = directory.and_then(|directory| self.fs.remove(directory, name, true));
        let dir_wcc = self.wcc(directory);
        self.answer(removed, |()| RMDIR3resok { dir_wcc }, &self.wcc(directory));
        Ok(())
    }

    pub(super) fn rename(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let (from, old) = self.place(arguments)?;
        let (to, new) = self.place(arguments)?;
        self.changing();
        let renamed = from.and_then(|from| to.and_then(|to| self.fs.rename((from, old), (to, new))));
        let done = RENAME3resok {
            fromdir_wcc: self.wcc(from),
            todir_wcc: self.wcc(to),
        };
        self.answer(
            renamed,
            |()| done,
            &RENAME3resfail {
                fromdir_wcc: self.wcc(from),
                todir_wcc: self.wcc(to),
            },
        );
        Ok(())
    }

    fn made(
        &mut self,
        directory: Status<Number>,
        made: Status<Number>,
    ) -> (post_op_fh3, post_op_attr, wcc_data) {
        if let Ok(number) = made {
            self.touched(number);
        }
        self.changing();
        let handle = made.map_or(Nfs3Option::None, |number| {
            Nfs3Option::Some(self.fs.handle(number))
        });
        (handle, self.after(made), self.wcc(directory))
    }
}
