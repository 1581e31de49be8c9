//! Objects: what a number stands for.

use std::{
    collections::{BTreeMap, HashMap},
    time::SystemTime,
};

use nfs3_types::nfs3::nfstime3;

use super::{BLOCK, Number, OBJECT_CHARGE};

pub(super) struct Object {
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) accessed: nfstime3,
    pub(super) modified: nfstime3,
    pub(super) changed: nfstime3,
    pub(super) content: Content,
}

pub(super) enum Content {
    File {
        size: u64,
        blocks: BTreeMap<u64, Box<[u8; BLOCK]>>,
    },
    Directory(Directory),
    Symlink(Box<[u8]>),
}

/// Names in the order of their making, which is also the order of cookies: a cookie stays valid
/// whatever else comes or goes.
#[derive(Default)]
pub(super) struct Directory {
    pub(super) parent: Number,
    pub(super) cookies: HashMap<Box<[u8]>, u64>,
    pub(super) entries: BTreeMap<u64, (Box<[u8]>, Number)>,
    pub(super) next_cookie: u64,
}

/// Cookies 1 and 2 are `.` and `..`.
pub(super) const FIRST_COOKIE: u64 = 3;

impl Directory {
    pub(super) fn find(&self, name: &[u8]) -> Option<Number> {
        let cookie = self.cookies.get(name)?;
        self.entries.get(cookie).map(|(_, number)| *number)
    }

    pub(super) fn insert(&mut self, name: &[u8], number: Number) {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.cookies.insert(name.into(), cookie);
        self.entries.insert(cookie, (name.into(), number));
    }

    pub(super) fn take(&mut self, name: &[u8]) {
        if let Some(cookie) = self.cookies.remove(name) {
            self.entries.remove(&cookie);
        }
    }
}

impl Object {
    pub(super) fn new(content: Content, mode: u32, owner: (u32, u32)) -> Self {
        let now = now();
        Self {
            mode,
            owner,
            accessed: now,
            modified: now,
            changed: now,
            content,
        }
    }

    pub(super) fn charge(&self) -> u64 {
        OBJECT_CHARGE
            + match &self.content {
                Content::File { blocks, .. } => (blocks.len() * BLOCK) as u64,
                Content::Directory(_) => 0,
                Content::Symlink(target) => target.len() as u64,
            }
    }
}

pub(super) fn place(offset: u64) -> (u64, usize) {
    (offset / BLOCK as u64, (offset % BLOCK as u64) as usize)
}

pub(super) fn now() -> nfstime3 {
    // A clock before 1970 is as good as 1970.
    SystemTime::now().try_into().unwrap_or_default()
}
