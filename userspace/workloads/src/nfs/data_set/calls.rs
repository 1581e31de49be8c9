//! The calls that make, list and remove files, with errors that say what was tried on what.

use nfs3_types::{
    nfs3::{
        CREATE3args, CREATE3res, FSINFO3args, FSINFO3res, FSSTAT3args, FSSTAT3res, LOOKUP3args, LOOKUP3res,
        MKDIR3args, MKDIR3res, Nfs3Option, READDIR3args, READDIR3res, REMOVE3args, REMOVE3res, RMDIR3args,
        RMDIR3res, SYMLINK3args, SYMLINK3res, WRITE3args, WRITE3res, cookieverf3, createhow3, nfs_fh3,
        nfspath3, nfsstat3, post_op_fh3, sattr3, stable_how, symlinkdata3,
    },
    xdr_codec::Opaque,
};

use super::DataSetError;
use crate::nfs::{
    client::Client,
    operation::{Answered as _, Failure, call, place},
    procedure::Procedure,
};

pub(super) async fn fill(
    client: &Client,
    file: &nfs_fh3,
    name: &str,
    size: u64,
    piece: u32,
) -> Result<(), DataSetError> {
    let zeros = vec![0x5a; piece as usize];
    let mut offset = 0;
    while offset < size {
        let count = u64::from(piece).min(size - offset) as u32;
        let arguments = WRITE3args {
            file: file.clone(),
            offset,
            count,
            stable: stable_how::UNSTABLE,
            data: Opaque::borrowed(&zeros[..count as usize]),
        };
        let (done, _) = call::<WRITE3res>(client, Procedure::Write, &arguments)
            .await
            .map_err(|failure| explain(failure, Procedure::Write, name, client))?;
        if done.count == 0 {
            let status = nfsstat3::NFS3ERR_IO;
            return Err(DataSetError::Status {
                step: Procedure::Write,
                name: name.to_owned(),
                status,
            });
        }
        offset += u64::from(done.count);
    }
    Ok(())
}

pub(super) async fn make_directory(
    client: &Client,
    parent: &nfs_fh3,
    name: &str,
) -> Result<nfs_fh3, DataSetError> {
    let attributes = sattr3 {
        mode: Nfs3Option::Some(0o755),
        ..sattr3::default()
    };
    let arguments = MKDIR3args {
        where_: place(parent.clone(), name),
        attributes,
    };
    let (done, _) = call::<MKDIR3res>(client, Procedure::Mkdir, &arguments)
        .await
        .map_err(|failure| explain(failure, Procedure::Mkdir, name, client))?;
    handle_of(client, Procedure::Mkdir, parent, name, done.obj).await
}

pub(super) async fn make_file(
    client: &Client,
    parent: &nfs_fh3,
    name: &str,
) -> Result<nfs_fh3, DataSetError> {
    let how = createhow3::GUARDED(sattr3 {
        mode: Nfs3Option::Some(0o644),
        ..sattr3::default()
    });
    let arguments = CREATE3args {
        where_: place(parent.clone(), name),
        how,
    };
    let (done, _) = call::<CREATE3res>(client, Procedure::Create, &arguments)
        .await
        .map_err(|failure| explain(failure, Procedure::Create, name, client))?;
    handle_of(client, Procedure::Create, parent, name, done.obj).await
}

pub(super) async fn make_link(
    client: &Client,
    parent: &nfs_fh3,
    name: &str,
    target: &str,
) -> Result<nfs_fh3, DataSetError> {
    let symlink = symlinkdata3 {
        symlink_attributes: sattr3::default(),
        symlink_data: nfspath3(Opaque::borrowed(target.as_bytes())),
    };
    let arguments = SYMLINK3args {
        where_: place(parent.clone(), name),
        symlink,
    };
    let (done, _) = call::<SYMLINK3res>(client, Procedure::Symlink, &arguments)
        .await
        .map_err(|failure| explain(failure, Procedure::Symlink, name, client))?;
    handle_of(client, Procedure::Symlink, parent, name, done.obj).await
}

/// Servers may leave the handle out; then it is looked up.
async fn handle_of(
    client: &Client,
    step: Procedure,
    parent: &nfs_fh3,
    name: &str,
    returned: post_op_fh3,
) -> Result<nfs_fh3, DataSetError> {
    match returned {
        Nfs3Option::Some(handle) => Ok(handle),
        Nfs3Option::None => lookup(client, parent, name)
            .await?
            .ok_or_else(|| DataSetError::NoHandle {
                step,
                name: name.to_owned(),
            }),
    }
}

pub(super) async fn lookup(
    client: &Client,
    parent: &nfs_fh3,
    name: &str,
) -> Result<Option<nfs_fh3>, DataSetError> {
    let arguments = LOOKUP3args {
        what: place(parent.clone(), name),
    };
    match call::<LOOKUP3res>(client, Procedure::Lookup, &arguments).await {
        Ok((done, _)) => Ok(Some(done.object)),
        Err(Failure::Status(nfsstat3::NFS3ERR_NOENT)) => Ok(None),
        Err(failure) => Err(explain(failure, Procedure::Lookup, name, client)),
    }
}

/// All names in a directory but `.` and `..`.
pub(super) async fn list(
    client: &Client,
    directory: &nfs_fh3,
    name: &str,
) -> Result<Vec<String>, DataSetError> {
    let (mut names, mut cookie, mut cookieverf) = (Vec::new(), 0, cookieverf3::default());
    loop {
        let arguments = READDIR3args {
            dir: directory.clone(),
            cookie,
            cookieverf,
            count: 8192,
        };
        let (done, _) = call::<READDIR3res<'_>>(client, Procedure::Readdir, &arguments)
            .await
            .map_err(|failure| explain(failure, Procedure::Readdir, name, client))?;
        cookieverf = done.cookieverf;
        let nothing = done.reply.entries.is_empty();
        for entry in done.reply.entries.into_inner() {
            cookie = entry.cookie;
            let name = String::from_utf8_lossy(entry.name.as_ref()).into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        if done.reply.eof || nothing {
            return Ok(names);
        }
    }
}

pub(super) async fn remove_name(
    client: &Client,
    step: Procedure,
    parent: &nfs_fh3,
    name: &str,
) -> Result<(), DataSetError> {
    let object = place(parent.clone(), name);
    let reply = if step == Procedure::Rmdir {
        client
            .nfs::<RMDIR3res>(step, &RMDIR3args { object })
            .await
            .map(|reply| reply.result.answered().map(drop))
    } else {
        client
            .nfs::<REMOVE3res>(step, &REMOVE3args { object })
            .await
            .map(|reply| reply.result.answered().map(drop))
    };
    match reply {
        // Gone already: a removal whose reply was lost.
        Ok(Ok(()) | Err(nfsstat3::NFS3ERR_NOENT)) => Ok(()),
        Ok(Err(status)) => Err(explain(Failure::Status(status), step, name, client)),
        Err(reason) => Err(DataSetError::Call {
            step,
            name: name.to_owned(),
            reason,
        }),
    }
}

pub(super) async fn free_bytes(client: &Client, root: &nfs_fh3) -> Result<u64, DataSetError> {
    let arguments = FSSTAT3args { fsroot: root.clone() };
    match call::<FSSTAT3res>(client, Procedure::Fsstat, &arguments).await {
        Ok((done, _)) => Ok(done.abytes),
        Err(failure) => Err(explain(failure, Procedure::Fsstat, "/", client)),
    }
}

pub(super) async fn largest_write(client: &Client, root: &nfs_fh3) -> Result<u32, DataSetError> {
    let arguments = FSINFO3args { fsroot: root.clone() };
    match call::<FSINFO3res>(client, Procedure::Fsinfo, &arguments).await {
        Ok((done, _)) => Ok(done.wtmax.max(1024)),
        Err(failure) => Err(explain(failure, Procedure::Fsinfo, "/", client)),
    }
}

fn explain(failure: Failure, step: Procedure, name: &str, client: &Client) -> DataSetError {
    let name = name.to_owned();
    match failure {
        Failure::Call(reason) => DataSetError::Call { step, name, reason },
        Failure::Status(nfsstat3::NFS3ERR_ROFS) => DataSetError::ReadOnly,
        Failure::Status(nfsstat3::NFS3ERR_ACCES | nfsstat3::NFS3ERR_PERM) => DataSetError::Forbidden {
            uid: client.options().user.0,
        },
        Failure::Status(status) => DataSetError::Status { step, name, status },
        // Only the load itself expects names and transfers.
        Failure::Unexpected | Failure::Incomplete { .. } => DataSetError::Status {
            step,
            name,
            status: nfsstat3::NFS3ERR_IO,
        },
    }
}
