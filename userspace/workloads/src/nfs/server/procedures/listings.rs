//! Procedures that describe many objects: readdir, readdirplus, fsstat, fsinfo, pathconf.

use nfs3_types::{
    nfs3::{
        FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_SYMLINK, FSINFO3resok, FSSTAT3resok, Nfs3Option,
        PATHCONF3resok, READDIR3resok, READDIRPLUS3resok, cookieverf3, dirlist3, dirlistplus3, entry3,
        entryplus3, filename3, nfsstat3, nfstime3,
    },
    xdr_codec::{BoundedList, List, Opaque},
};

use super::{Request, TRANSFER_LIMIT};
use crate::nfs::{
    server::memory::{FILE_LIMIT, NAME_LIMIT, Status},
    xdr::{Reader, XdrError},
};

/// Largest listing.
const LISTING_LIMIT: u32 = 32 * 1024;
/// Attributes, cookie verifier and the end mark of a listing, before any entry.
const LISTING_OVERHEAD: usize = 4 + 84 + 4 + 8 + 8;

/// A listing that has room for nothing although there is something fails.
fn complete<T>(entries: List<T>, eof: bool) -> Status<(List<T>, bool)> {
    if entries.is_empty() && !eof {
        Err(nfsstat3::NFS3ERR_TOOSMALL)
    } else {
        Ok((entries, eof))
    }
}

impl Request<'_> {
    pub(super) fn readdir(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let cookie = arguments.u64()?;
        arguments.u64()?;
        let count = arguments.u32()?.min(LISTING_LIMIT) as usize;
        let dir_attributes = self.after(object);
        let listed = object.and_then(|number| {
            let mut entries = BoundedList::new(count.saturating_sub(LISTING_OVERHEAD));
            let mut eof = true;
            for entry in self.fs.list(number, cookie)? {
                let entry = entry3 {
                    fileid: entry.number,
                    name: filename3(Opaque::owned(entry.name)),
                    cookie: entry.cookie,
                };
                if entries.try_push(entry).is_err() {
                    eof = false;
                    break;
                }
            }
            complete(entries.into_inner(), eof)
        });
        self.answer(
            listed,
            |(entries, eof)| READDIR3resok {
                dir_attributes: dir_attributes.clone(),
                cookieverf: cookieverf3::default(),
                reply: dirlist3 { entries, eof },
            },
            &dir_attributes,
        );
        Ok(())
    }

    pub(super) fn readdirplus(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let cookie = arguments.u64()?;
        arguments.u64()?;
        let mut names_left = arguments.u32()?.min(LISTING_LIMIT) as usize;
        let count = arguments.u32()?.min(LISTING_LIMIT) as usize;
        let dir_attributes = self.after(object);
        let listed = object.and_then(|number| {
            let mut entries = BoundedList::new(count.saturating_sub(LISTING_OVERHEAD));
            let mut eof = true;
            for entry in self.fs.list(number, cookie)? {
                // `dircount` limits the part that READDIR would send too.
                let names = 24 + entry.name.len().next_multiple_of(4);
                let entry = entryplus3 {
                    fileid: entry.number,
                    name: filename3(Opaque::owned(entry.name)),
                    cookie: entry.cookie,
                    name_attributes: self.after(Ok(entry.number)),
                    name_handle: Nfs3Option::Some(self.fs.handle(entry.number)),
                };
                if names > names_left || entries.try_push(entry).is_err() {
                    eof = false;
                    break;
                }
                names_left -= names;
            }
            complete(entries.into_inner(), eof)
        });
        self.answer(
            listed,
            |(entries, eof)| READDIRPLUS3resok {
                dir_attributes: dir_attributes.clone(),
                cookieverf: cookieverf3::default(),
                reply: dirlistplus3 { entries, eof },
            },
            &dir_attributes,
        );
        Ok(())
    }

    pub(super) fn fsstat(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let obj_attributes = self.after(object);
        let room = self.fs.room();
        // As many objects as the smallest would leave room for.
        let free_objects = room.free / 512;
        self.answer(
            object,
            |_| FSSTAT3resok {
                obj_attributes: obj_attributes.clone(),
                tbytes: room.capacity,
                fbytes: room.free,
                abytes: room.free,
                tfiles: room.objects + free_objects,
                ffiles: free_objects,
                afiles: free_objects,
                invarsec: 0,
            },
            &obj_attributes,
        );
        Ok(())
    }

    pub(super) fn fsinfo(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let obj_attributes = self.after(object);
        self.answer(
            object,
            |_| FSINFO3resok {
                obj_attributes: obj_attributes.clone(),
                rtmax: TRANSFER_LIMIT,
                rtpref: TRANSFER_LIMIT,
                rtmult: 4096,
                wtmax: TRANSFER_LIMIT,
                wtpref: TRANSFER_LIMIT,
                wtmult: 4096,
                dtpref: 8192,
                maxfilesize: FILE_LIMIT,
                time_delta: nfstime3 {
                    seconds: 0,
                    nseconds: 1,
                },
                properties: FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
            },
            &obj_attributes,
        );
        Ok(())
    }

    pub(super) fn pathconf(&mut self, arguments: &mut Reader<'_>) -> Result<(), XdrError> {
        let object = self.object(arguments)?;
        let obj_attributes = self.after(object);
        self.answer(
            object,
            |_| PATHCONF3resok {
                obj_attributes: obj_attributes.clone(),
                linkmax: 1,
                name_max: NAME_LIMIT as u32,
                no_trunc: true,
                chown_restricted: false,
                case_insensitive: false,
                case_preserving: true,
            },
            &obj_attributes,
        );
        Ok(())
    }
}
