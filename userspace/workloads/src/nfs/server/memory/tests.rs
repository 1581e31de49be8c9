use proptest::prelude::*;

use super::*;

fn small() -> FileSystem {
    FileSystem::new(1 << 20, false, 7)
}

fn file(fs: &mut FileSystem, name: &str) -> Number {
    fs.make(ROOT, name.as_bytes(), &Making::File, &sattr3::default())
        .unwrap()
}

#[test]
fn removed_is_stale_and_strange_is_bad() {
    let mut fs = small();
    let number = file(&mut fs, "a");
    let handle = fs.handle(number);
    assert_eq!(fs.number(&handle.data), Ok(number));
    fs.remove(ROOT, b"a", false).unwrap();
    assert_eq!(fs.number(&handle.data), Err(nfsstat3::NFS3ERR_STALE));
    assert_eq!(fs.number(b"short"), Err(nfsstat3::NFS3ERR_BADHANDLE));
    assert_eq!(
        FileSystem::new(0, false, 8).number(&small().handle(ROOT).data),
        Err(nfsstat3::NFS3ERR_STALE)
    );
}

#[test]
fn memory_is_bounded_and_comes_back() {
    let mut fs = small();
    let before = fs.room().free;
    let number = file(&mut fs, "big");
    let mut written = 0;
    let status = loop {
        match fs.write(number, written, &[1; 8192]) {
            Ok(()) => written += 8192,
            Err(status) => break status,
        }
    };
    assert_eq!(status, nfsstat3::NFS3ERR_NOSPC);
    assert!(written > 900_000 && written <= 1 << 20);
    fs.remove(ROOT, b"big", false).unwrap();
    assert_eq!(fs.room().free, before);
}

#[test]
fn read_only_refuses_every_change() {
    let mut fs = FileSystem::new(1 << 20, true, 7);
    let refused = Err(nfsstat3::NFS3ERR_ROFS);
    assert_eq!(fs.make(ROOT, b"a", &Making::File, &sattr3::default()), refused);
    assert_eq!(fs.write(ROOT, 0, b"x"), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(fs.remove(ROOT, b"a", false), Err(nfsstat3::NFS3ERR_ROFS));
    assert_eq!(
        fs.set_attributes(ROOT, &sattr3::default()),
        Err(nfsstat3::NFS3ERR_ROFS)
    );
}

#[test]
fn listing_goes_on_where_it_stopped_while_names_come_and_go() {
    let mut fs = small();
    for name in ["a", "b", "c", "d"] {
        file(&mut fs, name);
    }
    let names = |fs: &FileSystem, cookie| -> Vec<String> {
        fs.list(ROOT, cookie)
            .unwrap()
            .map(|entry| String::from_utf8(entry.name).unwrap())
            .collect()
    };
    assert_eq!(names(&fs, 0), [".", "..", "a", "b", "c", "d"]);
    let after_b = fs.list(ROOT, 0).unwrap().nth(3).unwrap().cookie;
    fs.remove(ROOT, b"a", false).unwrap();
    file(&mut fs, "e");
    assert_eq!(names(&fs, after_b), ["c", "d", "e"]);
    assert_eq!(names(&fs, u64::MAX), Vec::<String>::new());
}

#[test]
fn directories_do_not_move_into_themselves() {
    let mut fs = small();
    let outer = fs
        .make(ROOT, b"outer", &Making::Directory, &sattr3::default())
        .unwrap();
    let inner = fs
        .make(outer, b"inner", &Making::Directory, &sattr3::default())
        .unwrap();
    assert_eq!(
        fs.rename((ROOT, b"outer"), (inner, b"x")),
        Err(nfsstat3::NFS3ERR_INVAL)
    );
    assert_eq!(fs.remove(ROOT, b"outer", true), Err(nfsstat3::NFS3ERR_NOTEMPTY));
    fs.rename((outer, b"inner"), (ROOT, b"moved")).unwrap();
    assert_eq!(fs.lookup(inner, b".."), Ok(ROOT));
    fs.remove(ROOT, b"outer", true).unwrap();
}

proptest! {
    /// Against a plain vector of bytes.
    #[test]
    fn files_hold_what_was_written(steps in prop::collection::vec((0..30_000_u64, 0..9_000_usize, any::<bool>()), 1..20)) {
        let mut fs = small();
        let number = file(&mut fs, "f");
        let mut model: Vec<u8> = Vec::new();
        for (index, (offset, length, truncate)) in steps.into_iter().enumerate() {
            if truncate {
                fs.resize(number, offset).unwrap();
                model.resize(offset as usize, 0);
            } else if length > 0 {
                let data = vec![index as u8 + 1; length];
                fs.write(number, offset, &data).unwrap();
                model.resize(model.len().max(offset as usize + length), 0);
                model[offset as usize..offset as usize + length].copy_from_slice(&data);
            }
            let (seen, end) = fs.read(number, 0, 1 << 20).unwrap();
            prop_assert!(end);
            prop_assert_eq!(&seen, &model);
            let (tail, _) = fs.read(number, offset, 5000).unwrap();
            let from = (offset as usize).min(model.len());
            prop_assert_eq!(&tail[..], &model[from..model.len().min(from + 5000)]);
        }
        fs.remove(ROOT, b"f", false).unwrap();
        prop_assert_eq!(fs.used, OBJECT_CHARGE);
    }
}
