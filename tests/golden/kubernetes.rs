//! `packaging/kubernetes`: what Kubernetes' API takes, with the privileges that perturb needs and no others, and a call that perturb
//! takes. What happens on a node is in `program/containers`.

use std::{collections::BTreeSet, fs};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    Resource,
    api::{
        apps::v1::DaemonSet,
        batch::v1::Job,
        core::v1::{ConfigMap, Container, Namespace, PodSpec, ServiceAccount},
    },
};
use perturb_emulator::privileges::NEEDED;
use perturb_tests::product::Product;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tempfile::TempDir;

use super::{here, perturb, run};

/// To find the namespaces of other users' processes (`proc_ns_get_link`). An emulation gives it up.
const TO_FIND: &str = "SYS_PTRACE";

/// The objects of the manifest.
struct Manifest {
    namespace: Namespace,
    account: ServiceAccount,
    profile: ConfigMap,
    set: DaemonSet,
}

impl Manifest {
    fn read() -> Result<Self> {
        let path = here().join("../../packaging/kubernetes/perturb.yaml");
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        let [namespace, account, profile, set] = documents.as_slice() else {
            anyhow::bail!("{} objects", documents.len());
        };
        Ok(Self {
            namespace: known(namespace)?,
            account: known(account)?,
            profile: known(profile)?,
            set: known(set)?,
        })
    }

    fn pod(&self) -> Result<&PodSpec> {
        let set = self.set.spec.as_ref().context("no spec")?;
        set.template.spec.as_ref().context("no pod")
    }

    fn container(&self) -> Result<&Container> {
        let [one] = self.pod()?.containers.as_slice() else {
            anyhow::bail!("not one container");
        };
        Ok(one)
    }
}

/// An object of Kubernetes' API. A field that the API does not know is lost on the way, and missed.
fn known<T>(document: &Value) -> Result<T>
where
    T: Resource + DeserializeOwned + Serialize,
{
    let object: T = serde_json::from_value(document.clone()).with_context(|| T::KIND.to_owned())?;
    let known = serde_json::to_value(&object)?;
    ensure!(
        known == *document,
        "{} has what the API does not know:\n{document:#}\n{known:#}",
        T::KIND
    );
    Ok(object)
}

#[test]
fn a_sweep_is_an_indexed_job() -> Result<()> {
    let directory = TempDir::new()?;
    let experiment = "version: 1\nname: My_sweep\nbase: { latency: 1ms }\nknobs: { latency: [2ms] }\n\
                      workloads: [{ name: a, command: 'true' }]\n";
    fs::write(directory.path().join("e.yaml"), experiment)?;
    let words = [
        "sweep",
        "e.yaml",
        "--out",
        "/runs",
        "--tasks",
        "8",
        "--kubernetes",
        "tools/perturb:1",
    ];
    let product = Product::find_or_beside()?;
    let output = perturb(&product, &words).current_dir(directory.path()).output()?;
    let job: Job = known(&serde_json::from_slice(&output.stdout)?)?;
    ensure!(job.metadata.name.as_deref() == Some("perturb-my-sweep"));
    let spec = job.spec.context("no spec")?;
    ensure!(spec.completion_mode.as_deref() == Some("Indexed") && spec.completions == Some(8));
    let pod = spec.template.spec.context("no pod")?;
    let command = pod.containers[0].command.as_deref().unwrap_or_default().join(" ");
    ensure!(
        command.contains("perturb sweep e.yaml --out /runs --tasks 8 --array-index"),
        "{command}"
    );
    Ok(())
}

#[test]
fn what_the_api_does_not_know_is_noticed() -> Result<()> {
    let object = |data: &str| {
        serde_saphyr::from_str::<Value>(&format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{}}\n{data}"
        ))
    };
    known::<ConfigMap>(&object("data: { a: b }")?)?;
    for wrong in ["date: { a: b }", "data: { a: 1 }"] {
        ensure!(known::<ConfigMap>(&object(wrong)?).is_err(), "{wrong}");
    }
    Ok(())
}

#[test]
fn objects_refer_to_each_other() -> Result<()> {
    let manifest = Manifest::read()?;
    let name = manifest
        .namespace
        .metadata
        .name
        .as_deref()
        .context("a namespace has a name")?;
    for metadata in [
        &manifest.account.metadata,
        &manifest.profile.metadata,
        &manifest.set.metadata,
    ] {
        ensure!(metadata.namespace.as_deref() == Some(name), "{metadata:?}");
    }
    // hostPID and hostPath are admitted by no stricter one.
    let labels = manifest.namespace.metadata.labels.as_ref().context("no labels")?;
    ensure!(
        labels
            .get("pod-security.kubernetes.io/enforce")
            .is_some_and(|level| level == "privileged")
    );
    let set = manifest.set.spec.as_ref().context("no spec")?;
    let pods = set
        .template
        .metadata
        .as_ref()
        .and_then(|metadata| metadata.labels.as_ref());
    ensure!(
        set.selector.match_labels.as_ref() == pods && pods.is_some(),
        "the selector is not that of its pods"
    );
    let pod = manifest.pod()?;
    ensure!(pod.service_account_name == manifest.account.metadata.name);
    // No token: whoever takes perturb over may ask nothing of the cluster.
    ensure!(pod.automount_service_account_token == Some(false));
    ensure!(manifest.account.automount_service_account_token == Some(false));
    let volumes: BTreeSet<&str> = pod
        .volumes
        .iter()
        .flatten()
        .map(|volume| volume.name.as_str())
        .collect();
    let mounts = manifest
        .container()?
        .volume_mounts
        .as_ref()
        .context("no mounts")?;
    ensure!(volumes == mounts.iter().map(|mount| mount.name.as_str()).collect());
    let files = pod
        .volumes
        .iter()
        .flatten()
        .find_map(|volume| volume.config_map.as_ref());
    ensure!(files.is_some_and(|map| Some(&map.name) == manifest.profile.metadata.name.as_ref()));
    let keys = manifest.profile.data.as_ref().context("no profile")?;
    let file = mounts
        .iter()
        .find_map(|mount| mount.sub_path.as_ref())
        .context("no file")?;
    ensure!(keys.contains_key(file), "no {file}");
    Ok(())
}

/// The capabilities that an emulation keeps, and the one to find namespaces; none by another way.
#[test]
fn privileges_are_those_that_are_needed() -> Result<()> {
    let manifest = Manifest::read()?;
    let context = manifest
        .container()?
        .security_context
        .as_ref()
        .context("no context")?;
    let capabilities = context.capabilities.as_ref().context("no capabilities")?;
    ensure!(capabilities.drop == Some(vec!["ALL".to_owned()]));
    let given: BTreeSet<&str> = capabilities.add.iter().flatten().map(String::as_str).collect();
    let needed: BTreeSet<&str> = NEEDED
        .iter_names()
        .map(|(name, _)| name)
        .chain([TO_FIND])
        .collect();
    ensure!(given == needed, "{given:?}, not {needed:?}");
    ensure!(context.privileged.is_none() && context.read_only_root_filesystem == Some(true));
    ensure!(
        context
            .seccomp_profile
            .as_ref()
            .is_some_and(|profile| profile.type_ == "RuntimeDefault")
    );
    let pod = manifest.pod()?;
    ensure!(pod.host_pid == Some(true) && pod.host_network == Some(true) && pod.host_ipc.is_none());
    // Of the node's files those two directories; what perturb does not write it may not write.
    let host: BTreeSet<(&str, bool)> = pod
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| Some((volume.host_path.as_ref()?.path.as_str(), volume.name.as_str())))
        .map(|(path, name)| {
            let mounts = manifest
                .container()
                .ok()
                .and_then(|container| container.volume_mounts.as_ref());
            let mut mounts = mounts.into_iter().flatten();
            (
                path,
                mounts.any(|mount| mount.name == name && mount.read_only == Some(true)),
            )
        })
        .collect();
    ensure!(
        host == BTreeSet::from([("/run/containerd", true), ("/run/perturb", false)]),
        "{host:?}"
    );
    Ok(())
}

/// The program takes the call, but for the engine, which is not here.
#[test]
fn the_call_is_one_of_perturb() -> Result<()> {
    let product = Product::find_or_beside()?;
    let manifest = Manifest::read()?;
    let folder = TempDir::with_prefix("perturb-kubernetes-")?;
    let container = manifest.container()?;
    let mut arguments = container.args.clone().context("no arguments")?;
    let mounts = container.volume_mounts.iter().flatten();
    let mut replaced = 0;
    for mount in mounts.filter(|mount| mount.sub_path.is_some()) {
        let key = mount.sub_path.as_deref().unwrap_or_default();
        let text = manifest
            .profile
            .data
            .as_ref()
            .and_then(|data| data.get(key))
            .context("no profile")?;
        let file = folder.path().join(key);
        fs::write(&file, text)?;
        let file = file.to_str().context("a path")?.to_owned();
        let output = run(&product, &["check", &file])?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && !said.contains("warning"), "{said}");
        for argument in arguments
            .iter_mut()
            .filter(|argument| **argument == mount.mount_path)
        {
            argument.clone_from(&file);
            replaced += 1;
        }
    }
    ensure!(
        replaced == 1,
        "the call names {replaced} profiles that are mounted"
    );
    let words: Vec<&str> = arguments
        .iter()
        .map(String::as_str)
        .chain(["--dry-run"])
        .collect();
    let nobody = folder.path().join("nobody.sock");
    let output = perturb(&product, &words)
        .env("DOCKER_HOST", format!("unix://{}", nobody.display()))
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("no container engine answers"), "{said}");
    Ok(())
}
