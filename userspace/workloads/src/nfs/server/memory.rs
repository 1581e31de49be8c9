//! A file system in memory, with a limit.
//!
//! Model: objects (files, directories, symbolic links) by number; numbers are never used again, so a
//! handle of a removed object is stale for good. A handle is the instance's random number and the
//! object's. Files hold real bytes in blocks of 4 KiB; a hole takes no memory and reads as zeros.
//! Each object is charged 512 bytes besides its blocks, names and targets, and what would go over the
//! capacity fails with NFS3ERR_NOSPC, so memory is bounded.
//! What is lacking: permissions (everybody may do everything), hard links, devices.

mod object;

use std::collections::{BTreeMap, HashMap};

use nfs3_types::nfs3::{
    Nfs3Option, fattr3, ftype3, nfs_fh3, nfsstat3, sattr3, set_atime, set_mtime, specdata3,
};
use nfs3_types::xdr_codec::Opaque;

use self::object::{Content, Directory, FIRST_COOKIE, Object, now, place};

/// Bytes of a block.
const BLOCK: usize = 4096;
/// Memory charged for an object besides its contents.
const OBJECT_CHARGE: u64 = 512;
/// Memory charged for a directory entry besides its name.
const ENTRY_CHARGE: u64 = 128;
/// Longest name, as on other file systems.
pub(super) const NAME_LIMIT: usize = 255;
/// Largest file; far beyond any capacity.
pub(super) const FILE_LIMIT: u64 = 1 << 40;
const ROOT: Number = 1;

/// The number of an object.
pub(super) type Number = u64;
pub(super) type Status<T> = Result<T, nfsstat3>;

pub(super) struct FileSystem {
    instance: u64,
    objects: HashMap<Number, Object>,
    next: Number,
    capacity: u64,
    used: u64,
    read_only: bool,
}

/// What to make.
pub(super) enum Making<'a> {
    File,
    Directory,
    Symlink(&'a [u8]),
}

/// One entry of a listing.
pub(super) struct Entry {
    pub(super) cookie: u64,
    pub(super) name: Vec<u8>,
    pub(super) number: Number,
}

/// Room in the file system.
pub(super) struct Room {
    pub(super) capacity: u64,
    pub(super) free: u64,
    pub(super) objects: u64,
}

impl FileSystem {
    pub(super) fn new(capacity: u64, read_only: bool, instance: u64) -> Self {
        let directory = Directory {
            parent: ROOT,
            next_cookie: FIRST_COOKIE,
            ..Directory::default()
        };
        let root = Object::new(Content::Directory(directory), 0o777, (0, 0));
        Self {
            instance,
            objects: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            capacity,
            used: OBJECT_CHARGE,
            read_only,
        }
    }

    pub(super) fn root(&self) -> Number {
        ROOT
    }

    pub(super) fn handle(&self, number: Number) -> nfs_fh3 {
        let mut bytes = Vec::with_capacity(16);
        bytes.extend_from_slice(&self.instance.to_be_bytes());
        bytes.extend_from_slice(&number.to_be_bytes());
        nfs_fh3 {
            data: Opaque::owned(bytes),
        }
    }

    /// The object that a handle of this instance means, if it still exists.
    pub(super) fn number(&self, handle: &[u8]) -> Status<Number> {
        let Some((instance, number)) = handle.split_first_chunk::<8>() else {
            return Err(nfsstat3::NFS3ERR_BADHANDLE);
        };
        let number = number
            .try_into()
            .map(u64::from_be_bytes)
            .map_err(|_| nfsstat3::NFS3ERR_BADHANDLE)?;
        // Another instance's handle: the server was started anew in between.
        let known = u64::from_be_bytes(*instance) == self.instance && self.objects.contains_key(&number);
        if known {
            Ok(number)
        } else {
            Err(nfsstat3::NFS3ERR_STALE)
        }
    }

    pub(super) fn attributes(&self, number: Number) -> Status<fattr3> {
        let object = self.object(number)?;
        let (type_, size, used, links) = match &object.content {
            Content::File { size, blocks } => (ftype3::NF3REG, *size, (blocks.len() * BLOCK) as u64, 1),
            Content::Directory(directory) => {
                let size = directory.entries.len() as u64 * ENTRY_CHARGE;
                (ftype3::NF3DIR, size, size, 2)
            }
            Content::Symlink(target) => (ftype3::NF3LNK, target.len() as u64, target.len() as u64, 1),
        };
        let (uid, gid) = object.owner;
        Ok(fattr3 {
            type_,
            mode: object.mode,
            nlink: links,
            uid,
            gid,
            size,
            used,
            rdev: specdata3::default(),
            fsid: self.instance,
            fileid: number,
            atime: object.accessed,
            mtime: object.modified,
            ctime: object.changed,
        })
    }

    pub(super) fn set_attributes(&mut self, number: Number, new: &sattr3) -> Status<()> {
        self.check_writable()?;
        if let Nfs3Option::Some(size) = new.size {
            self.resize(number, size)?;
        }
        let now = now();
        let object = self.object_mut(number)?;
        if let Nfs3Option::Some(mode) = new.mode {
            object.mode = mode & 0o7777;
        }
        if let Nfs3Option::Some(uid) = new.uid {
            object.owner.0 = uid;
        }
        if let Nfs3Option::Some(gid) = new.gid {
            object.owner.1 = gid;
        }
        match new.atime {
            set_atime::DONT_CHANGE => {}
            set_atime::SET_TO_SERVER_TIME => object.accessed = now,
            set_atime::SET_TO_CLIENT_TIME(time) => object.accessed = time,
        }
        match new.mtime {
            set_mtime::DONT_CHANGE => {}
            set_mtime::SET_TO_SERVER_TIME => object.modified = now,
            set_mtime::SET_TO_CLIENT_TIME(time) => object.modified = time,
        }
        object.changed = now;
        Ok(())
    }

    pub(super) fn lookup(&self, directory: Number, name: &[u8]) -> Status<Number> {
        let entries = self.directory(directory)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(entries.parent),
            _ if name.len() > NAME_LIMIT => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
            _ => entries.find(name).ok_or(nfsstat3::NFS3ERR_NOENT),
        }
    }

    pub(super) fn target(&self, number: Number) -> Status<&[u8]> {
        match &self.object(number)?.content {
            Content::Symlink(target) => Ok(target),
            Content::File { .. } | Content::Directory(_) => Err(nfsstat3::NFS3ERR_INVAL),
        }
    }

    /// Up to `count` bytes from `offset`, and whether the file ends there.
    pub(super) fn read(&self, number: Number, offset: u64, count: usize) -> Status<(Vec<u8>, bool)> {
        let Content::File { size, blocks } = &self.object(number)?.content else {
            return Err(self.not_a_file(number));
        };
        let end = size.saturating_sub(offset).min(count as u64) + offset.min(*size);
        let mut data = Vec::with_capacity((end - offset.min(*size)) as usize);
        let mut at = offset.min(*size);
        while at < end {
            let (block, within) = place(at);
            let length = (BLOCK - within).min((end - at) as usize);
            match blocks.get(&block) {
                Some(bytes) => data.extend_from_slice(&bytes[within..within + length]),
                None => data.resize(data.len() + length, 0),
            }
            at += length as u64;
        }
        Ok((data, end >= *size))
    }

    pub(super) fn write(&mut self, number: Number, offset: u64, data: &[u8]) -> Status<()> {
        self.check_writable()?;
        let end = offset
            .checked_add(data.len() as u64)
            .filter(|end| *end <= FILE_LIMIT);
        let end = end.ok_or(nfsstat3::NFS3ERR_FBIG)?;
        let not_a_file = self.not_a_file(number);
        let room = self.capacity.saturating_sub(self.used);
        let object = self.objects.get_mut(&number).ok_or(nfsstat3::NFS3ERR_STALE)?;
        let Content::File { size, blocks } = &mut object.content else {
            return Err(not_a_file);
        };
        if !data.is_empty() {
            let (first, last) = (offset / BLOCK as u64, (end - 1) / BLOCK as u64);
            let present = blocks.range(first..=last).count() as u64;
            let charge = (last - first + 1 - present) * BLOCK as u64;
            if charge > room {
                return Err(nfsstat3::NFS3ERR_NOSPC);
            }
            self.used += charge;
            let mut rest = data;
            let mut at = offset;
            while !rest.is_empty() {
                let (block, within) = place(at);
                let (now, later) = rest.split_at(rest.len().min(BLOCK - within));
                let bytes = blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK]));
                bytes[within..within + now.len()].copy_from_slice(now);
                at += now.len() as u64;
                rest = later;
            }
            *size = (*size).max(end);
        }
        object.modified = now();
        object.changed = object.modified;
        Ok(())
    }

    /// Makes an object under a new name.
    pub(super) fn make(
        &mut self,
        directory: Number,
        name: &[u8],
        making: &Making<'_>,
        attributes: &sattr3,
    ) -> Status<Number> {
        self.check_writable()?;
        check_new_name(name)?;
        if self.directory(directory)?.find(name).is_some() {
            return Err(nfsstat3::NFS3ERR_EXIST);
        }
        let number = self.next;
        let content = match making {
            Making::File => Content::File {
                size: 0,
                blocks: BTreeMap::new(),
            },
            Making::Directory => Content::Directory(Directory {
                parent: directory,
                next_cookie: FIRST_COOKIE,
                ..Directory::default()
            }),
            Making::Symlink(target) => Content::Symlink((*target).into()),
        };
        let mode = if matches!(content, Content::Directory(_)) {
            0o755
        } else {
            0o644
        };
        let object = Object::new(content, mode, (0, 0));
        let charge = object.charge() + ENTRY_CHARGE + name.len() as u64;
        if charge > self.capacity.saturating_sub(self.used) {
            return Err(nfsstat3::NFS3ERR_NOSPC);
        }
        self.objects.insert(number, object);
        if let Err(status) = self.set_attributes(number, attributes) {
            self.objects.remove(&number);
            return Err(status);
        }
        self.next += 1;
        self.used += charge;
        self.directory_mut(directory)?.insert(name, number);
        Ok(number)
    }

    /// Removes a file or link, or with `directory_wanted` an empty directory.
    pub(super) fn remove(&mut self, directory: Number, name: &[u8], directory_wanted: bool) -> Status<()> {
        self.check_writable()?;
        let number = self
            .directory(directory)?
            .find(name)
            .ok_or(nfsstat3::NFS3ERR_NOENT)?;
        match &self.object(number)?.content {
            Content::Directory(_) if !directory_wanted => return Err(nfsstat3::NFS3ERR_ISDIR),
            Content::Directory(inner) if !inner.entries.is_empty() => {
                return Err(nfsstat3::NFS3ERR_NOTEMPTY);
            }
            Content::File { .. } | Content::Symlink(_) if directory_wanted => {
                return Err(nfsstat3::NFS3ERR_NOTDIR);
            }
            _ => {}
        }
        self.directory_mut(directory)?.take(name);
        self.used -= ENTRY_CHARGE + name.len() as u64;
        self.forget(number);
        Ok(())
    }

    pub(super) fn rename(&mut self, from: (Number, &[u8]), to: (Number, &[u8])) -> Status<()> {
        self.check_writable()?;
        check_new_name(to.1)?;
        let number = self
            .directory(from.0)?
            .find(from.1)
            .ok_or(nfsstat3::NFS3ERR_NOENT)?;
        if self.is_inside(to.0, number)? {
            return Err(nfsstat3::NFS3ERR_INVAL);
        }
        if let Some(replaced) = self.directory(to.0)?.find(to.1) {
            if replaced == number {
                return Ok(());
            }
            let moved_directory = matches!(self.object(number)?.content, Content::Directory(_));
            self.remove(to.0, to.1, moved_directory)
                .map_err(|status| match status {
                    // Something of the other kind is in the way.
                    nfsstat3::NFS3ERR_ISDIR | nfsstat3::NFS3ERR_NOTDIR => nfsstat3::NFS3ERR_EXIST,
                    other => other,
                })?;
        }
        self.directory_mut(from.0)?.take(from.1);
        self.used = self.used + to.1.len() as u64 - from.1.len() as u64;
        self.directory_mut(to.0)?.insert(to.1, number);
        if let Content::Directory(moved) = &mut self.object_mut(number)?.content {
            moved.parent = to.0;
        }
        Ok(())
    }

    /// The entries after `cookie`, `.` and `..` first.
    pub(super) fn list(&self, number: Number, cookie: u64) -> Status<impl Iterator<Item = Entry>> {
        let directory = self.directory(number)?;
        let dots =
            [(1, ".", number), (2, "..", directory.parent)]
                .into_iter()
                .map(|(cookie, name, number)| Entry {
                    cookie,
                    name: name.into(),
                    number,
                });
        let named = directory
            .entries
            .range(cookie.saturating_add(1)..)
            .map(|(cookie, (name, number))| Entry {
                cookie: *cookie,
                name: name.to_vec(),
                number: *number,
            });
        Ok(dots.filter(move |entry| entry.cookie > cookie).chain(named))
    }

    pub(super) fn room(&self) -> Room {
        Room {
            capacity: self.capacity,
            free: self.capacity.saturating_sub(self.used),
            objects: self.objects.len() as u64,
        }
    }

    pub(super) fn set_capacity(&mut self, bytes: u64) {
        self.capacity = bytes;
    }

    pub(super) fn instance(&self) -> [u8; 8] {
        self.instance.to_be_bytes()
    }

    fn resize(&mut self, number: Number, new: u64) -> Status<()> {
        if new > FILE_LIMIT {
            return Err(nfsstat3::NFS3ERR_FBIG);
        }
        let not_a_file = self.not_a_file(number);
        let Content::File { size, blocks } = &mut self.object_mut(number)?.content else {
            return Err(not_a_file);
        };
        let freed = blocks.split_off(&new.div_ceil(BLOCK as u64)).len();
        let (block, within) = place(new);
        if let Some(bytes) = blocks.get_mut(&block).filter(|_| new < *size) {
            // What is beyond the end must read as zeros should the file grow again.
            bytes[within..].fill(0);
        }
        *size = new;
        self.used -= (freed * BLOCK) as u64;
        self.object_mut(number)?.modified = now();
        Ok(())
    }

    fn forget(&mut self, number: Number) {
        if let Some(object) = self.objects.remove(&number) {
            self.used -= object.charge();
        }
    }

    /// Whether `directory` is `number` or lies below it.
    fn is_inside(&self, directory: Number, number: Number) -> Status<bool> {
        let mut at = directory;
        loop {
            if at == number {
                return Ok(true);
            }
            if at == ROOT {
                return Ok(false);
            }
            at = self.directory(at)?.parent;
        }
    }

    fn check_writable(&self) -> Status<()> {
        if self.read_only {
            Err(nfsstat3::NFS3ERR_ROFS)
        } else {
            Ok(())
        }
    }

    fn not_a_file(&self, number: Number) -> nfsstat3 {
        match self.objects.get(&number).map(|object| &object.content) {
            None => nfsstat3::NFS3ERR_STALE,
            Some(Content::Directory(_)) => nfsstat3::NFS3ERR_ISDIR,
            Some(Content::Symlink(_) | Content::File { .. }) => nfsstat3::NFS3ERR_INVAL,
        }
    }

    fn object(&self, number: Number) -> Status<&Object> {
        self.objects.get(&number).ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn object_mut(&mut self, number: Number) -> Status<&mut Object> {
        self.objects.get_mut(&number).ok_or(nfsstat3::NFS3ERR_STALE)
    }

    fn directory(&self, number: Number) -> Status<&Directory> {
        match &self.object(number)?.content {
            Content::Directory(directory) => Ok(directory),
            Content::File { .. } | Content::Symlink(_) => Err(nfsstat3::NFS3ERR_NOTDIR),
        }
    }

    /// A directory that is about to change.
    fn directory_mut(&mut self, number: Number) -> Status<&mut Directory> {
        let object = self.object_mut(number)?;
        object.modified = now();
        object.changed = object.modified;
        match &mut object.content {
            Content::Directory(directory) => Ok(directory),
            Content::File { .. } | Content::Symlink(_) => Err(nfsstat3::NFS3ERR_NOTDIR),
        }
    }
}

fn check_new_name(name: &[u8]) -> Status<()> {
    match name {
        b"" | b"." | b".." => Err(nfsstat3::NFS3ERR_INVAL),
        _ if name.len() > NAME_LIMIT => Err(nfsstat3::NFS3ERR_NAMETOOLONG),
        _ if name.contains(&b'/') || name.contains(&0) => Err(nfsstat3::NFS3ERR_INVAL),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
