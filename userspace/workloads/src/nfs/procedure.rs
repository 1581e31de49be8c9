//! The procedures of NFS version 3 (RFC 1813 section 3), by number and by name.

use serde::{Deserialize, Serialize};

/// A procedure of NFS version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the protocol's own")]
pub enum Procedure {
    Null = 0,
    Getattr = 1,
    Setattr = 2,
    Lookup = 3,
    Access = 4,
    Readlink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    Mkdir = 9,
    Symlink = 10,
    Mknod = 11,
    Remove = 12,
    Rmdir = 13,
    Rename = 14,
    Link = 15,
    Readdir = 16,
    Readdirplus = 17,
    Fsstat = 18,
    Fsinfo = 19,
    Pathconf = 20,
    Commit = 21,
}

impl Procedure {
    /// All of them, by number.
    pub const ALL: [Self; 22] = [
        Self::Null,
        Self::Getattr,
        Self::Setattr,
        Self::Lookup,
        Self::Access,
        Self::Readlink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Mknod,
        Self::Remove,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Readdir,
        Self::Readdirplus,
        Self::Fsstat,
        Self::Fsinfo,
        Self::Pathconf,
        Self::Commit,
    ];

    /// The procedure with this number.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// Its number on the wire.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }

    /// Its name in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        [
            "null",
            "getattr",
            "setattr",
            "lookup",
            "access",
            "readlink",
            "read",
            "write",
            "create",
            "mkdir",
            "symlink",
            "mknod",
            "remove",
            "rmdir",
            "rename",
            "link",
            "readdir",
            "readdirplus",
            "fsstat",
            "fsinfo",
            "pathconf",
            "commit",
        ][self as usize]
    }

    /// Whether doing it twice differs from doing it once.
    #[must_use]
    pub fn changes_names(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::Mkdir
                | Self::Symlink
                | Self::Mknod
                | Self::Remove
                | Self::Rmdir
                | Self::Rename
                | Self::Link
        )
    }
}

impl std::fmt::Display for Procedure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_protocols() {
        for procedure in Procedure::ALL {
            assert_eq!(Procedure::from_number(procedure.number()), Some(procedure));
            let theirs = nfs3_types::nfs3::NFS_PROGRAM::try_from(procedure.number()).unwrap();
            assert_eq!(
                theirs.to_string(),
                format!("NFSPROC3_{}", procedure.name().to_uppercase())
            );
        }
        assert_eq!(Procedure::from_number(22), None);
    }
}
