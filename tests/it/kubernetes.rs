//! Manifests for Kubernetes match its schemas, the program, the guide and each other.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::support::app::MASTER_KEY;
use crate::support::program::{run_bellwire, stdout_of};
use crate::support::repository::{assert_no_findings, container_tool, read_file, root};

const DIRECTORY: &str = "contrib/kubernetes";
const GUIDE: &str = "docs/operate/kubernetes.md";
/// The oldest version that the guide names, and the newest one with published schemas.
const VERSIONS: [&str; 2] = ["1.30.0", "1.37.0"];
/// Time of a stop after its deadline: connections close, and a collector receives the last spans.
const STOP_EXTRA_SECONDS: u64 = 10;
/// Files with resources of operators, which Kubernetes itself has no schemas for.
const OF_OPERATORS: [&str; 2] = ["postgres.yaml", "monitoring.yaml"];

fn documents(file: &str) -> Vec<Value> {
    let text = read_file(&format!("{DIRECTORY}/{file}"));
    let parsed = serde_norway::Deserializer::from_str(&text).map(|document| Value::deserialize(document).expect(file));
    parsed.collect()
}

fn kustomization() -> Value {
    documents("kustomization.yaml").remove(0)
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().expect("a string")).collect()
}

fn text_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{pointer} in {value}"))
}

/// Every resource of the kustomization.
fn resources() -> Vec<Value> {
    strings(&kustomization()["resources"]).into_iter().flat_map(documents).collect()
}

fn of_kind(kind: &str) -> Vec<Value> {
    let found: Vec<Value> = resources().into_iter().filter(|resource| resource["kind"] == kind).collect();
    assert!(!found.is_empty(), "{kind}");
    found
}

/// Deployments and Jobs.
fn workloads() -> Vec<Value> {
    [of_kind("Deployment"), of_kind("Job")].concat()
}

fn name(resource: &Value) -> &str {
    text_at(resource, "/metadata/name")
}

fn pod(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]
}

/// The only container of a workload.
fn container(workload: &Value) -> &Value {
    let containers = pod(workload)["containers"].as_array().expect("containers");
    assert_eq!(containers.len(), 1, "{}", name(workload));
    assert_eq!(pod(workload)["initContainers"], Value::Null);
    &containers[0]
}

/// The environment of a container, with the values of its Secrets.
fn environment(workload: &Value) -> BTreeMap<String, String> {
    let settings = &of_kind("ConfigMap")[0];
    let container = container(workload);
    let from: Vec<&str> =
        container["envFrom"].as_array().into_iter().flatten().map(|from| text_at(from, "/configMapRef/name")).collect();
    assert_eq!(from, [name(settings)]);
    let data = settings["data"].as_object().expect("settings");
    let mut known: BTreeMap<String, String> =
        data.iter().map(|(name, value)| (name.clone(), value.as_str().expect("a string").to_owned())).collect();
    for variable in container["env"].as_array().expect("variables") {
        let value = match variable["value"].as_str() {
            // Only variables that are defined before are expanded.
            Some(text) => known.iter().fold(text.to_owned(), |text, (k, v)| text.replace(&format!("$({k})"), v)),
            None => {
                let secret = &variable["valueFrom"]["secretKeyRef"];
                match (text_at(secret, "/name"), text_at(secret, "/key")) {
                    ("bellwire", "master-key") => MASTER_KEY.to_owned(),
                    // As CloudNativePG writes it.
                    ("bellwire-db-app", "uri") => {
                        "postgresql://bellwire:hush@bellwire-db-rw.bellwire:5432/bellwire".to_owned()
                    }
                    other => panic!("{other:?} is not a Secret that the guide names"),
                }
            }
        };
        assert!(!value.contains("$("), "{value}");
        known.insert(text_at(variable, "/name").to_owned(), value);
    }
    known
}

/// Whether these labels meet the selector.
fn selects(selector: &Value, labels: &Value) -> bool {
    let matches = |(key, value): (&String, &Value)| &labels[key] == value;
    let expression = |expression: &Value| {
        assert_eq!(expression["operator"], "In");
        expression["values"].as_array().expect("values").contains(&labels[text_at(expression, "/key")])
    };
    let labels = selector["matchLabels"].as_object();
    let expressions = selector["matchExpressions"].as_array();
    assert!(labels.is_some() || expressions.is_some(), "{selector} selects everything");
    labels.into_iter().flatten().all(matches) && expressions.into_iter().flatten().all(expression)
}

/// Names of the workloads that a selector selects.
fn selected(selector: &Value) -> BTreeSet<String> {
    let all = workloads();
    let found = all.iter().filter(|workload| selects(selector, &workload["spec"]["template"]["metadata"]["labels"]));
    found.map(|workload| name(workload).to_owned()).collect()
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(|name| format!("bellwire-{name}")).into()
}

/// Port names of a workload.
fn ports(workload: &Value) -> BTreeSet<&str> {
    container(workload)["ports"].as_array().into_iter().flatten().map(|port| text_at(port, "/name")).collect()
}

#[test]
fn kustomization_lists_every_manifest() {
    let directory = std::fs::read_dir(root().join(DIRECTORY)).expect("a directory");
    let files = directory.map(|file| file.expect("a file").file_name().into_string().expect("UTF-8"));
    let files: BTreeSet<String> = files.filter(|file| file != "kustomization.yaml").collect();
    let kustomization = kustomization();
    let listed = strings(&kustomization["resources"]).into_iter().map(str::to_owned).collect();
    assert_eq!(files, listed);
    let compose: Value = serde_norway::from_str(&read_file("contrib/compose/compose.yaml")).expect("YAML");
    let built = &compose["services"]["server"]["image"];
    let image = &kustomization["images"][0];
    assert_eq!((&image["name"], &image["newTag"]), (built, &env!("CARGO_PKG_VERSION").into()));
    assert!(workloads().iter().all(|workload| &container(workload)["image"] == built));
    assert_eq!(kustomization["namespace"], of_kind("Namespace")[0]["metadata"]["name"]);
}

#[test]
fn manifests_match_schemas_of_kubernetes() {
    let kustomization = kustomization();
    let files = strings(&kustomization["resources"]).into_iter().filter(|file| !OF_OPERATORS.contains(file));
    let files: Vec<String> = files.map(|file| format!("{DIRECTORY}/{file}")).collect();
    let validator = |version: &str| -> Command {
        let mut command = container_tool("kubernetes-validate");
        command.args(["--strict", "--kubernetes-version", version]);
        command
    };
    for version in VERSIONS {
        assert_no_findings(validator(version).args(&files));
    }
    assert!(read_file(GUIDE).contains("Kubernetes 1.30"), "the guide names the oldest version");
}

/// Fails if a value has other fields than a shape, or a value of another type. The first item of an array is the shape of all.
#[track_caller]
fn fits(value: &Value, shape: &Value) {
    match (value, shape) {
        (Value::Object(fields), Value::Object(known)) if !known.is_empty() => {
            for (field, value) in fields {
                fits(value, known.get(field).unwrap_or_else(|| panic!("{field} is not a field: {known:?}")));
            }
        }
        (Value::Array(items), Value::Array(known)) => items.iter().for_each(|item| fits(item, &known[0])),
        _ => assert_eq!(std::mem::discriminant(value), std::mem::discriminant(shape), "{value} is not like {shape}"),
    }
}

/// Fields that the descriptions of CloudNativePG 1.25 and the Prometheus operator 0.80 have; `{}` is any object.
#[test]
fn resources_of_operators_have_their_fields() {
    let metadata = json!({"name": "", "labels": {}});
    let quantities = json!({"cpu": "", "memory": ""});
    let cluster = json!({
        "apiVersion": "", "kind": "", "metadata": metadata,
        "spec": {
            "instances": 1, "imageName": "", "bootstrap": {"initdb": {"database": "", "owner": ""}},
            "postgresql": {"parameters": {}, "synchronous": {"method": "", "number": 1}},
            "storage": {"size": ""}, "walStorage": {"size": ""},
            "resources": {"requests": quantities, "limits": quantities},
        },
    });
    let monitor = json!({
        "apiVersion": "", "kind": "", "metadata": metadata,
        "spec": {
            "jobLabel": "", "podMetricsEndpoints": [{"port": "", "path": "", "interval": ""}],
            "selector": {"matchLabels": {}, "matchExpressions": [{"key": "", "operator": "", "values": [""]}]},
        },
    });
    let expected = [("postgresql.cnpg.io/v1", "Cluster", cluster), ("monitoring.coreos.com/v1", "PodMonitor", monitor)];
    for (file, (version, kind, shape)) in OF_OPERATORS.into_iter().zip(expected) {
        let documents = documents(file);
        assert_eq!(documents.len(), 1, "{file}");
        assert_eq!((text_at(&documents[0], "/apiVersion"), text_at(&documents[0], "/kind")), (version, kind));
        fits(&documents[0], &shape);
    }
    let parameters = &of_kind("Cluster")[0]["spec"]["postgresql"]["parameters"];
    assert!(parameters.as_object().expect("parameters").values().all(Value::is_string), "{parameters}");
}

#[test]
fn pods_start_with_valid_settings() {
    for workload in workloads() {
        let args = strings(&container(&workload)["args"]);
        if args[0] != "serve" {
            run_bellwire(&[&args[..], &["--help"]].concat());
            continue;
        }
        let environment = environment(&workload);
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwire"));
        command.env_clear().envs(&environment).args(&args).arg("--print-config");
        let output = command.output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let printed = stdout_of(output);
        let ours: Vec<&String> = environment.keys().filter(|name| name.starts_with("BELLWIRE_")).collect();
        assert!(ours.len() >= 6, "{ours:?}");
        for variable in ours {
            assert!(printed.lines().any(|line| line.ends_with(&format!(" # {variable}"))), "{variable}:\n{printed}");
        }
        let url = &environment["BELLWIRE_DATABASE_URL"];
        assert!(url.contains("?sslmode=verify-full&sslrootcert=/etc/bellwire/postgres/ca.crt"), "{url}");
    }
}

#[test]
fn deployments_cover_every_role() {
    let printed = stdout_of(run_bellwire(&["serve", "--print-config"]));
    let roles = printed.lines().find_map(|line| line.trim_start_matches("# ").strip_prefix("roles = \""));
    let all = roles.and_then(|roles| roles.split('"').next()).expect("the default").split(',').map(str::to_owned);
    let deployments = of_kind("Deployment");
    let mut covered = BTreeSet::new();
    for deployment in &deployments {
        let role = environment(deployment).remove("BELLWIRE_ROLES").expect("a role");
        assert_eq!(name(deployment), format!("bellwire-{role}"));
        covered.insert(role);
    }
    assert_eq!(covered, all.collect());
}

/// Without this, an edit of one of the three files is easily forgotten in the others.
#[test]
fn deployments_differ_by_role_only() {
    let alike = |deployment: &Value| {
        let role = text_at(deployment, "/metadata/labels/app.kubernetes.io~1component").to_owned();
        let mut deployment: Value =
            serde_json::from_str(&deployment.to_string().replace(&format!("\"{role}\""), "\"role\"")).expect("JSON");
        deployment["metadata"]["name"] = Value::Null;
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["resources"]["requests"] = Value::Null;
        container["lifecycle"] = Value::Null;
        deployment
    };
    let deployments: Vec<Value> = of_kind("Deployment").iter().map(alike).collect();
    assert!(deployments.iter().all(|deployment| *deployment == deployments[0]), "{deployments:#?}");
}

#[test]
fn pods_meet_the_restricted_standard() {
    let enforced = "pod-security.kubernetes.io/enforce";
    assert_eq!(of_kind("Namespace")[0]["metadata"]["labels"][enforced], "restricted");
    for workload in workloads() {
        let (pod, container) = (pod(&workload), container(&workload));
        let security = json!({
            "runAsNonRoot": true, "runAsUser": 65532, "runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"},
        });
        assert_eq!(pod["securityContext"], security);
        let security = json!({
            "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]},
        });
        assert_eq!(container["securityContext"], security);
        assert_eq!((&pod["automountServiceAccountToken"], &pod["enableServiceLinks"]), (&false.into(), &false.into()));
        for field in ["hostNetwork", "hostPID", "hostIPC"] {
            assert_eq!(pod[field], Value::Null, "{field}");
        }
        for path in ["/requests/cpu", "/requests/memory", "/limits/memory"] {
            text_at(&container["resources"], path);
        }
        for volume in pod["volumes"].as_array().expect("volumes") {
            assert!(volume.get("secret").is_some(), "{volume}");
            // The authority's Secret contains its private key, too.
            assert_eq!(volume["secret"]["items"], json!([{"key": "ca.crt", "path": "ca.crt"}]));
        }
    }
    let image = read_file("Containerfile");
    assert!(image.contains("\nUSER 65532:65532\n"), "the user of the image");
}

#[test]
fn selectors_match_their_pods() {
    for workload in of_kind("Deployment") {
        assert_eq!(selected(&workload["spec"]["selector"]), [name(&workload).to_owned()].into());
        for spread in pod(&workload)["topologySpreadConstraints"].as_array().expect("constraints") {
            assert_eq!(selected(&spread["labelSelector"]), [name(&workload).to_owned()].into());
        }
    }
    let budgets = of_kind("PodDisruptionBudget");
    let budgets: Vec<_> = budgets.iter().map(|budget| selected(&budget["spec"]["selector"])).collect();
    assert_eq!(budgets, [names(["api"]), names(["worker"]), names(["maintenance"])]);
    let service = &of_kind("Service")[0];
    assert_eq!(selected(&json!({"matchLabels": service["spec"]["selector"]})), names(["api"]));
    let serving = names(["api", "worker", "maintenance"]);
    let monitor = &of_kind("PodMonitor")[0];
    assert_eq!(selected(&monitor["spec"]["selector"]), serving);
    let port = text_at(monitor, "/spec/podMetricsEndpoints/0/port");
    let deployments = of_kind("Deployment");
    assert!(deployments.iter().all(|deployment| ports(deployment).contains(port)));
    // The alert rules expect the job `bellwire`.
    let label = text_at(monitor, "/spec/jobLabel");
    assert!(
        deployments.iter().all(|deployment| deployment["spec"]["template"]["metadata"]["labels"][label] == "bellwire")
    );
}

#[test]
fn network_policies_open_only_what_is_needed() {
    let policies: BTreeMap<String, Value> =
        of_kind("NetworkPolicy").into_iter().map(|policy| (name(&policy).to_owned(), policy["spec"].clone())).collect();
    let all = names(["api", "worker", "maintenance", "migrate"]);
    let chosen = |policy: &str| selected(&policies[policy]["podSelector"]);
    let base = &policies["bellwire"];
    assert_eq!((chosen("bellwire"), &base["policyTypes"]), (all, &json!(["Ingress", "Egress"])));
    assert_eq!(base["ingress"], Value::Null);
    let cluster = &of_kind("Cluster")[0];
    assert_eq!(base["egress"][1]["to"][0]["podSelector"]["matchLabels"]["cnpg.io/cluster"], name(cluster));
    assert_eq!(chosen("bellwire-api"), names(["api"]));
    assert_eq!(policies["bellwire-api"]["ingress"], json!([{"ports": [{"protocol": "TCP", "port": "http"}]}]));
    assert_eq!(policies["bellwire-metrics"]["ingress"][0]["ports"], json!([{"protocol": "TCP", "port": "metrics"}]));
    assert_eq!(chosen("bellwire-internet"), names(["api", "worker", "maintenance"]));
    let internet = &policies["bellwire-internet"]["egress"][0];
    assert_eq!(internet["ports"], json!([{"protocol": "TCP", "port": 443}]));
    let ranges = internet["to"].as_array().expect("ranges").iter();
    assert!(
        ranges.clone().count() == 2 && ranges.clone().all(|range| !strings(&range["ipBlock"]["except"]).is_empty())
    );
    let known: BTreeSet<&str> = BTreeSet::from(["bellwire", "bellwire-api", "bellwire-metrics", "bellwire-internet"]);
    assert_eq!(policies.keys().map(String::as_str).collect::<BTreeSet<_>>(), known);
}

#[test]
fn pods_have_time_to_stop() {
    for deployment in of_kind("Deployment") {
        let deadline = environment(&deployment).remove("BELLWIRE_SHUTDOWN_DEADLINE").expect("a deadline");
        let deadline: u64 = deadline.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).expect("seconds");
        let sleep = &container(&deployment)["lifecycle"]["preStop"]["sleep"]["seconds"];
        assert_eq!(sleep.is_u64(), name(&deployment) == "bellwire-api", "only the API is behind a Service");
        let needed = sleep.as_u64().unwrap_or_default() + deadline + STOP_EXTRA_SECONDS;
        let grace = pod(&deployment)["terminationGracePeriodSeconds"].as_u64().expect("seconds");
        assert!(grace >= needed, "{}: {grace} s for {needed} s", name(&deployment));
    }
}

#[test]
fn probes_call_routes_of_the_server() {
    let description: Value = serde_json::from_str(&stdout_of(run_bellwire(&["openapi"]))).expect("JSON");
    let service = &of_kind("Service")[0];
    for deployment in of_kind("Deployment") {
        let container = container(&deployment);
        let probe = |name: &str| {
            let get = &container[name]["httpGet"];
            assert_eq!(get["port"], service["spec"]["ports"][0]["targetPort"]);
            let path = text_at(get, "/path").to_owned();
            assert!(description["paths"][&path]["get"].is_object(), "{path}");
            path
        };
        let paths = ["startupProbe", "livenessProbe", "readinessProbe"].map(probe);
        assert_eq!(paths, ["/healthz", "/healthz", "/readyz"]);
        let environment = environment(&deployment);
        let listened = environment["BELLWIRE_METRICS_LISTEN"].rsplit(':').next().expect("a port").to_owned();
        let listed = container["ports"].as_array().expect("ports").iter().map(|port| port["containerPort"].to_string());
        let image = read_file("Containerfile");
        assert!(image.contains("BELLWIRE_LISTEN=0.0.0.0:8787"), "the port of the image");
        assert_eq!(listed.collect::<Vec<_>>(), ["8787".to_owned(), listened]);
    }
}

#[test]
fn guide_names_every_secret_and_configmap() {
    let guide = read_file(GUIDE);
    let mut seen = BTreeSet::new();
    for workload in workloads() {
        let container = container(&workload);
        let values = container["env"]
            .as_array()
            .expect("variables")
            .iter()
            .map(|variable| &variable["valueFrom"]["secretKeyRef"]);
        for secret in values.filter(|secret| !secret.is_null()) {
            seen.insert((text_at(secret, "/name").to_owned(), text_at(secret, "/key").to_owned()));
        }
        for volume in pod(&workload)["volumes"].as_array().expect("volumes") {
            seen.insert((text_at(volume, "/secret/secretName").to_owned(), "ca.crt".to_owned()));
        }
    }
    assert_eq!(seen.len(), 3, "{seen:?}");
    for (secret, key) in seen {
        let row = guide.lines().find(|line| line.starts_with(&format!("| Secret `{secret}`")));
        assert!(row.is_some_and(|row| row.contains(&format!("`{key}`"))), "{secret} {key} is not in {GUIDE}");
    }
    for settings in of_kind("ConfigMap") {
        assert!(guide.contains(&format!("| ConfigMap `{}`", name(&settings))));
    }
    // No secret is in a manifest.
    assert!(resources().iter().all(|resource| resource["kind"] != "Secret"));
}
