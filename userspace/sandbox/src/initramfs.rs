//! The archive of files that a kernel starts with: cpio's `newc` format (the kernel's
//! Documentation/driver-api/early-userspace/buffer-format.rst), not compressed.

/// Entries are padded to this.
const ALIGNMENT: usize = 4;
const DIRECTORY: u32 = 0o040_755;
const FILE: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive in the making.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// A directory; its parent must be there already.
    pub(crate) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// An executable file.
    pub(crate) fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, FILE, data);
    }

    /// A symbolic link.
    pub(crate) fn link(&mut self, path: &str, target: &str) {
        self.entry(path, LINK, target.as_bytes());
    }

    /// The whole.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8]) {
        let path = path.trim_start_matches('/');
        self.entries += 1;
        // Numbers of a file are 32 bits; what a kernel starts with is far smaller.
        let length = |bytes: usize| u32::try_from(bytes).unwrap_or(u32::MAX);
        // inode, mode, owner, group, links, time, length, device (2), device of a node (2), length of the name, checksum.
        let fields = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length(data.len()),
            0,
            0,
            0,
            0,
            length(path.len() + 1),
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_header_name_and_data_each_padded() {
        let mut archive = Archive::default();
        archive.file("/a/b", b"12345");
        let bytes = archive.finish();
        let header = [
            "070701", "00000001", "000081ed", "00000000", "00000000", "00000001", "00000000", "00000005",
            "00000000", "00000000", "00000000", "00000000", "00000004", "00000000",
        ];
        let end = 110;
        assert_eq!(&bytes[..end], header.concat().as_bytes());
        assert_eq!(&bytes[end..end + 6], b"a/b\0\0\0");
        assert_eq!(&bytes[end + 6..end + 14], b"12345\0\0\0");
        assert_eq!(&bytes[end + 14..end + 20], b"070701");
        assert_eq!(bytes.len() % ALIGNMENT, 0);
    }
}
