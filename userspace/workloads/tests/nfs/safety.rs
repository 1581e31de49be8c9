//! A load never touches what it did not make, and leaves nothing of its own.

use std::time::{Duration, Instant};

use nfs3_types::{
    nfs3::{
        CREATE3args, CREATE3res, LOOKUP3args, LOOKUP3res, MKDIR3args, MKDIR3res, Nfs3Option, Nfs3Result,
        createhow3, diropargs3, filename3, nfs_fh3, sattr3,
    },
    xdr_codec::Opaque,
};
use perturb_workloads::nfs::{
    Stop,
    client::{Client, Options, mount},
    data_set::{DataSetError, MARKER},
    load::{LoadError, Progress},
    procedure::Procedure,
    record::CutShort,
};

use crate::common::{beside_others, config, plan, run, run_and, serve};

fn named<'a>(directory: &nfs_fh3, name: &'a str) -> diropargs3<'a> {
    diropargs3 {
        dir: directory.clone(),
        name: filename3(Opaque::borrowed(name.as_bytes())),
    }
}

async fn make_directory(client: &Client, parent: &nfs_fh3, name: &str) -> nfs_fh3 {
    let arguments = MKDIR3args {
        where_: named(parent, name),
        attributes: sattr3::default(),
    };
    let reply = client
        .nfs::<MKDIR3res>(Procedure::Mkdir, &arguments)
        .await
        .unwrap();
    let Nfs3Option::Some(handle) = reply.result.unwrap().obj else {
        panic!("no handle")
    };
    handle
}

async fn make_file(client: &Client, parent: &nfs_fh3, name: &str) {
    let how = createhow3::GUARDED(sattr3::default());
    let arguments = CREATE3args {
        where_: named(parent, name),
        how,
    };
    client
        .nfs::<CREATE3res>(Procedure::Create, &arguments)
        .await
        .unwrap()
        .result
        .unwrap();
}

async fn exists(client: &Client, parent: &nfs_fh3, name: &str) -> bool {
    let arguments = LOOKUP3args {
        what: named(parent, name),
    };
    let reply = client
        .nfs::<LOOKUP3res>(Procedure::Lookup, &arguments)
        .await
        .unwrap();
    matches!(reply.result, Nfs3Result::Ok(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_directory_with_somebodys_data_is_left_alone() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let mut plan = plan(server.address());
    let (address, root) = mount(&plan.export, plan.ports, &plan.options).await.unwrap();
    let client = Client::connect(address, &Options::default()).await.unwrap();
    let directory = make_directory(&client, &root, "work").await;
    // Its names even look like ours.
    let inner = make_directory(&client, &directory, "d000000").await;
    make_file(&client, &inner, "f000000").await;
    let before = server.objects();

    let error = run(plan.clone()).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::NotEmpty(_))),
        "{error}"
    );
    plan.reuse = true;
    let error = run(plan).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::NotOurs { .. })),
        "{error}"
    );
    assert_eq!(server.objects(), before);
    assert!(exists(&client, &inner, "f000000").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn reuse_takes_away_our_leftovers_and_nothing_else() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let mut plan = plan(server.address());
    let (address, root) = mount(&plan.export, plan.ports, &plan.options).await.unwrap();
    let client = Client::connect(address, &Options::default()).await.unwrap();
    let directory = make_directory(&client, &root, "work").await;
    make_file(&client, &directory, MARKER).await;
    make_file(&client, &directory, "notes.txt").await;
    let inner = make_directory(&client, &directory, "d000000").await;
    make_file(&client, &inner, "f000001").await;
    make_file(&client, &inner, "thesis.tex").await;

    let error = run(plan.clone()).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::NotEmpty(_))),
        "{error}"
    );
    plan.reuse = true;
    // The directory d000000 cannot be made, because somebody's file keeps it.
    let error = run(plan.clone()).await.unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::Status { .. })),
        "{error}"
    );
    assert!(exists(&client, &directory, "notes.txt").await);
    assert!(exists(&client, &inner, "thesis.tex").await);
    assert!(
        !exists(&client, &inner, "f000001").await,
        "a leftover of an earlier load"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_empty_directory_of_the_user_may_be_worked_in() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let plan = plan(server.address());
    let (address, root) = mount(&plan.export, plan.ports, &plan.options).await.unwrap();
    let client = Client::connect(address, &Options::default()).await.unwrap();
    make_directory(&client, &root, "work").await;
    assert!(run(plan).await.unwrap().left_behind.is_none());
}

/// The user stops it while it runs, and while it makes its files.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn stopping_cleans_up() {
    let _guard = beside_others().await;
    let server = serve(&config()).await;
    let mut plan = plan(server.address());
    plan.duration = Duration::from_secs(600);
    let stop = Stop::default();
    let stopping = stop.clone();
    let begun = Instant::now();
    let outcome = run_and(plan.clone(), stop, move |progress| {
        if matches!(progress, Progress::Running { elapsed, .. } if elapsed > Duration::from_secs(1)) {
            stopping.set();
        }
    })
    .await
    .unwrap();
    assert_eq!(outcome.record.cut_short, Some(CutShort::Stopped));
    assert!(
        outcome.record.duration_s > 0.3 && outcome.record.delivered_op_s > 100.0,
        "{:?}",
        outcome.record
    );
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(server.objects(), 1);

    plan.scale = 0.02;
    let stop = Stop::default();
    let stopping = stop.clone();
    let error = run_and(plan, stop, move |progress| {
        if matches!(progress, Progress::Making { done, .. } if done > 500) {
            stopping.set();
        }
    })
    .await
    .unwrap_err();
    assert!(
        matches!(error, LoadError::DataSet(DataSetError::Stopped)),
        "{error}"
    );
    assert_eq!(server.objects(), 1);
}
