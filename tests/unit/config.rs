use super::value::Roles;
use super::*;
use crate::server;
use bellwire_core::role::Role;
use bellwire_net::http_server;

const KEY: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

fn read(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> Result<Config, Error> {
    let environment =
        |name: &str| variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned());
    let sources = Sources {
        flags: &flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect(),
        environment: &environment,
        file: Some(file::parse(Path::new("bellwire.toml"), file, &is_setting)?),
        passed_over: None,
        default_data_dir: "/data".to_owned(),
        search_path: None,
        variables: variables.iter().map(|(name, _)| (*name).to_owned()).collect(),
    };
    Config::read(&sources)?.consistent()
}

fn refused(flags: &[(&'static str, &str)], variables: &[(&str, &str)], file: &str) -> String {
    read(flags, variables, file).expect_err("a wrong value").to_string()
}

#[test]
fn every_default_is_allowed() {
    let config = read(&[], &[], "").unwrap();
    assert_eq!(config.listen.to_string(), "127.0.0.1:8787");
    assert_eq!(config.base_url().as_str(), "http://127.0.0.1:8787/");
    assert_eq!(config.data_dir, Path::new("/data"));
    assert_eq!(config.roles, Roles { api: true, worker: true, maintenance: true });
    assert_eq!(config.shutdown_deadline, Duration::from_secs(20));
    assert_eq!(server::http_limits(&config), http_server::ListenerLimits::default());
    assert_eq!(config.policy(), policy::TierSettings::DEFAULT);
    let given = [config.circuit_failure_threshold, config.circuit_open_max.as_secs_f64()];
    let tuned = policy::TierSettings::DEFAULT;
    assert_eq!(given, [tuned.circuit_failure_threshold, tuned.circuit_open_max.as_secs_f64()]);
    assert!(config.gateways.is_empty() && config.database_url.is_none() && !config.allow_loopback);
    assert!(
        matches!(config.master_key_source(), master_key::MasterKeySource::File(path) if path == Path::new("/data/master.key"))
    );
}

#[test]
fn own_database_variable_precedes_the_common() {
    let (ours, common) = (("BELLWIRE_DATABASE_URL", "postgres://ours"), ("DATABASE_URL", "postgres://common"));
    let in_file = "database_url = 'postgres://file'";
    let named = |variables: &[(&str, &str)], file| {
        let config = read(&[], variables, file).unwrap();
        let url = config.database_url.as_ref().map(|url| url.expose().to_owned());
        (url, config.origin("database_url"), config.database_may_be_anothers())
    };
    let url = |url: &str| Some(format!("postgres://{url}"));
    assert_eq!(named(&[common, ours], in_file), (url("ours"), "BELLWIRE_DATABASE_URL".to_owned(), false));
    assert_eq!(named(&[common], in_file), (url("common"), "DATABASE_URL".to_owned(), true));
    assert_eq!(named(&[], in_file), (url("file"), "`database_url` in bellwire.toml".to_owned(), false));
    assert_eq!(named(&[], ""), (None, "BELLWIRE_DATABASE_URL".to_owned(), false));
}

#[test]
fn localhost_and_wildcard_addresses_are_supported() {
    let url = |listen| read(&[("listen", listen)], &[], "").unwrap().base_url().to_string();
    assert_eq!(url("localhost:8787"), "http://127.0.0.1:8787/");
    assert_eq!(url("0.0.0.0:80"), "http://127.0.0.1/");
    assert_eq!(url("[::]:8787"), "http://[::1]:8787/");
    let metrics = read(&[("metrics_listen", "localhost:9187")], &[], "").unwrap().metrics_listen;
    assert_eq!(metrics, Some(([127, 0, 0, 1], 9187).into()));
    assert!(refused(&[("listen", "localhost")], &[], "").contains("localhost:8787"));
}

#[test]
fn https_needs_files_or_a_domain() {
    let files = [("tls_cert", "/etc/chain.pem"), ("tls_key", "/etc/key.pem")];
    let config = read(&files, &[], "").unwrap();
    assert!(config.speaks_https() && config.base_url().as_str() == "https://127.0.0.1:8787/", "{}", config.base_url());
    let domain = ("acme_domain", "Push.Example.com");
    let config = read(&[domain, ("listen", "0.0.0.0:8443")], &[], "").unwrap();
    assert_eq!(config.public_url.as_ref().map(Url::as_str), Some("https://push.example.com/"));
    assert_eq!(config.acme_directory.as_str(), "https://acme-v02.api.letsencrypt.org/directory");
    let given = read(&[domain, ("public_url", "https://push.example.com:8443")], &[], "").unwrap();
    assert_eq!(given.public_url.as_ref().and_then(Url::port), Some(8443));
    assert!(!read(&[], &[], "").unwrap().speaks_https());
    for (flags, named) in [
        (vec![files[0]], "tls_key"),
        (vec![files[1]], "tls_cert"),
        (vec![files[0], files[1], domain], "acme_domain"),
        (vec![("redirect_listen", "0.0.0.0:80")], "redirect_listen"),
        (vec![domain, ("public_url", "http://push.example.com")], "public_url"),
        (vec![("acme_domain", "10.0.0.1")], "acme-domain"),
        (vec![("acme_domain", "*.example.com")], "acme-domain"),
        (vec![("acme_domain", "localhost")], "acme-domain"),
        (vec![("acme_directory", "http://acme.example/dir")], "acme-directory"),
        (vec![("acme_email", "nobody")], "acme-email"),
        (vec![("hsts_max_age", "800d")], "hsts-max-age"),
    ] {
        let text = refused(&flags, &[], "");
        assert!(text.contains(named) && text.contains("must be"), "{named}: {text}");
    }
}

#[test]
fn one_setting_selects_all_guide_values() {
    let guide = ("policy_defaults", "guide");
    assert_eq!(read(&[guide], &[], "").unwrap().policy(), policy::TierSettings::GUIDE);
    let some = [guide, ("circuit_failure_threshold", "0.25"), ("circuit_consecutive_failures", "9")];
    let expected = policy::TierSettings {
        circuit_failure_threshold: 0.25,
        circuit_failures_in_a_row: 9,
        ..policy::TierSettings::GUIDE
    };
    assert_eq!(read(&some, &[], "").unwrap().policy(), expected);
}

#[test]
fn flag_precedes_variable_file_and_default() {
    let (variable, file) = ([("BELLWIRE_BATCH_MAX", "200")], "batch_max = 100");
    assert_eq!(read(&[], &[], "").unwrap().batch_max, 500);
    assert_eq!(read(&[], &[], file).unwrap().batch_max, 100);
    assert_eq!(read(&[], &variable, file).unwrap().batch_max, 200);
    assert_eq!(read(&[("batch_max", "300")], &variable, file).unwrap().batch_max, 300);
}

#[test]
fn file_has_typed_values() {
    let file = "allow_loopback = true\ncircuit_failure_threshold = 0.5\n\
        gateways = ['a.test=fcm', \"b.test=wns@127.0.0.1:1\"]\nroles = ['api']";
    let config = read(&[], &[], file).unwrap();
    assert!(config.allow_loopback);
    assert_eq!(config.circuit_failure_threshold, 0.5);
    assert_eq!(config.gateways, ["a.test=fcm", "b.test=wns@127.0.0.1:1"]);
    assert_eq!(config.roles, Roles { api: true, worker: false, maintenance: false });
}

#[test]
fn wrong_value_names_the_allowed_ones() {
    assert_eq!(
        refused(&[("listen", "8787")], &[], ""),
        "--listen is \"8787\", but must be an address and a port, such as 127.0.0.1:8787, localhost:8787 or 0.0.0.0:8787"
    );
    assert_eq!(
        refused(&[], &[("BELLWIRE_BATCH_MAX", "501")], ""),
        "BELLWIRE_BATCH_MAX is \"501\", but must be a whole number from 1 to 500"
    );
    assert_eq!(
        refused(&[], &[], "log_format = 'xml'"),
        "`log_format` in bellwire.toml is \"xml\", but must be text or json"
    );
    assert_eq!(
        refused(&[], &[], "batch_min = 400\nbatch_max = 300"),
        "batch_min is 400, but must be at most batch_max, which is 300"
    );
    for (key, value) in [
        ("roles", "api,cook"),
        ("roles", ""),
        ("shutdown_deadline", "20"),
        ("shutdown_deadline", "0s"),
        ("shutdown_deadline", "99999999999999999999d"),
        ("shutdown_deadline", ""),
        ("allow_loopback", "yes"),
        ("log", "info,=="),
        ("public_url", "push.example.com"),
        ("data_dir", ""),
        ("retention_days", "28"),
        ("trusted_proxies", "-1"),
        ("example", "perhaps"),
        ("metrics_listen", "9187"),
        ("header_limit_octets", "4096"),
        ("idle_timeout", "2h"),
        ("circuit_failure_threshold", "0"),
        ("circuit_failure_threshold", "1.01"),
        ("circuit_failure_threshold", "NaN"),
        ("circuit_failure_threshold", "25 %"),
        ("otel_exporter_otlp_endpoint", "collector:4317"),
        ("otel_exporter_otlp_endpoint", "grpc://collector:4317"),
        ("otel_exporter_otlp_endpoint", "https://user:hush@collector:4318"),
        ("otel_service_name", ""),
        ("otel_traces_sampler", "sometimes"),
        ("otel_traces_sampler_arg", "1.01"),
        ("otel_metric_export_interval", "60s"),
    ] {
        let text = refused(&[(key, value)], &[], "");
        assert!(text.contains("must be"), "{key}={value}: {text}");
    }
}

#[test]
fn unknown_key_or_broken_file_is_refused() {
    assert!(refused(&[], &[], "batch_maxx = 1").starts_with("bellwire.toml has the unknown key `batch_maxx`"));
    assert!(refused(&[], &[], "[listen]\nport = 1").contains("`listen` must be a string"));
    let text = refused(&[], &[], "log = 'info'\nmaster_key = 'hush");
    assert!(text.starts_with("bellwire.toml: line 2") && !text.contains("hush"), "{text}");
}

#[test]
fn secrets_are_never_shown() {
    let variables = [("DATABASE_URL", "postgres://u:hush@h/d"), ("BELLWIRE_MASTER_KEY", KEY)];
    let config = read(&[], &variables, "").unwrap();
    assert!(matches!(config.master_key_source(), master_key::MasterKeySource::Given(_)));
    assert_eq!(config.database_url.as_ref().unwrap().expose(), "postgres://u:hush@h/d");
    for text in [config.print(), format!("{config:?}")] {
        assert!(!text.contains("hush") && !text.contains(KEY), "{text}");
    }
    assert!(config.print().contains("# database_url = \"********\" # DATABASE_URL\n"), "{}", config.print());
    assert_eq!(
        refused(&[], &[("DATABASE_URL", "mysql://hush")], ""),
        "DATABASE_URL is not a URL that begins with postgres://"
    );
}

#[test]
fn opentelemetry_uses_its_standard_variables() {
    assert!(read(&[], &[], "").unwrap().otlp().is_none());
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318/otlp/"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20hush, x-team=push"),
        ("OTEL_SERVICE_NAME", "push"),
        ("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"),
        ("OTEL_TRACES_SAMPLER_ARG", "0.01"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "15000"),
    ];
    let config = read(&[], &variables, "").unwrap();
    let otlp = config.otlp().unwrap();
    assert_eq!(otlp.traces.as_ref().unwrap().as_str(), "http://127.0.0.1:4318/otlp/v1/traces");
    assert_eq!(otlp.metrics.as_ref().unwrap().as_str(), "http://127.0.0.1:4318/otlp/v1/metrics");
    assert_eq!(otlp.service_name, "push");
    assert_eq!((otlp.sampling, otlp.share), (bellwire_telemetry::otlp::Sampling::ParentOrShare, 0.01));
    assert!(otlp.headers["authorization"] == "Bearer hush" && otlp.headers["x-team"] == "push");
    assert_eq!(otlp.metrics_every, std::time::Duration::from_secs(15));
    for text in [config.print(), format!("{config:?} {otlp:?}")] {
        assert!(!text.contains("hush"), "{text}");
    }
    assert_eq!(
        refused(&[], &[("OTEL_EXPORTER_OTLP_HEADERS", "authorization: hush")], ""),
        "OTEL_EXPORTER_OTLP_HEADERS is not a list of headers, such as authorization=Bearer%20abc,x-team=push"
    );
}

#[test]
fn opentelemetry_signals_have_their_own_urls() {
    let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.example.com/in/");
    let otlp = read(&[], &[traces], "").unwrap().otlp().unwrap();
    assert_eq!(otlp.traces.unwrap().as_str(), "https://traces.example.com/in/");
    assert_eq!(otlp.metrics, None);
    let both = [traces, ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")];
    let otlp = read(&[], &both, "").unwrap().otlp().unwrap();
    assert_eq!(otlp.traces.unwrap().as_str(), "https://traces.example.com/in/");
    assert_eq!(otlp.metrics.unwrap().as_str(), "http://127.0.0.1:4318/v1/metrics");
    for yes in ["true", "True"] {
        assert!(read(&[], &[traces, ("OTEL_SDK_DISABLED", yes)], "").unwrap().otlp().is_none());
    }
}

#[test]
fn resource_attributes_are_decoded_and_name_the_service() {
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318");
    let attributes = |text| ("OTEL_RESOURCE_ATTRIBUTES", text);
    let otlp = read(&[], &[endpoint, attributes("service.name=shop, team=web%20push")], "").unwrap().otlp().unwrap();
    assert_eq!(otlp.service_name, "shop");
    assert_eq!(otlp.resource, [("team".to_owned(), "web push".to_owned())].into());
    let named = [endpoint, attributes("service.name=shop"), ("OTEL_SERVICE_NAME", "push")];
    assert_eq!(read(&[], &named, "").unwrap().otlp().unwrap().service_name, "push");
    for wrong in ["team", "=push", "team=%ff"] {
        assert!(refused(&[], &[attributes(wrong)], "").starts_with("OTEL_RESOURCE_ATTRIBUTES is"), "{wrong}");
    }
}

#[test]
fn secrets_come_from_files_of_variables() {
    let file = std::env::temp_dir().join(format!("bellwire-secret-{}", uuid::Uuid::now_v7()));
    std::fs::write(&file, "postgres://user:hush@db.example.com/push\n").unwrap();
    let path = file.to_str().unwrap();
    for variable in ["BELLWIRE_DATABASE_URL_FILE", "DATABASE_URL_FILE"] {
        let config = read(&[], &[(variable, path)], "").unwrap();
        assert_eq!(config.database_url.as_ref().unwrap().expose(), "postgres://user:hush@db.example.com/push");
        assert_eq!(config.database_may_be_anothers(), variable == "DATABASE_URL_FILE");
        assert!(
            config.print().contains(&format!("# database_url = \"********\" # {variable}\n")),
            "{}",
            config.print()
        );
    }
    let refused = |variables: &[(&str, &str)]| refused(&[], variables, "");
    let both = [("BELLWIRE_DATABASE_URL", "postgres://x/y"), ("BELLWIRE_DATABASE_URL_FILE", path)];
    assert_eq!(refused(&both), "BELLWIRE_DATABASE_URL_FILE is given, but must be empty with BELLWIRE_DATABASE_URL");
    std::fs::write(&file, "mysql://hush").unwrap();
    assert_eq!(
        refused(&[("BELLWIRE_DATABASE_URL_FILE", path)]),
        "BELLWIRE_DATABASE_URL_FILE is not a URL that begins with postgres://"
    );
    std::fs::write(&file, " \n").unwrap();
    assert!(refused(&[("BELLWIRE_DATABASE_URL_FILE", path)]).contains("names an empty file"));
    std::fs::write(&file, "x".repeat(20_000)).unwrap();
    assert!(refused(&[("BELLWIRE_DATABASE_URL_FILE", path)]).contains("at most 16384 bytes"));
    std::fs::remove_file(&file).unwrap();
    assert!(refused(&[("BELLWIRE_DATABASE_URL_FILE", path)]).contains("which cannot be read (No such file"));
    // A command must not come from a file that others may write.
    assert!(read(&[], &[("BELLWIRE_MASTER_KEY_COMMAND_FILE", path)], "").unwrap().master_key_command.is_none());
    // Secrets only: other settings have no such variable.
    assert!(read(&[], &[("BELLWIRE_LISTEN_FILE", path)], "").unwrap().is_default("listen"));
}

#[test]
fn printed_settings_read_back() {
    let config =
        read(&[("batch_max", "77")], &[("BELLWIRE_LOG", "warn,bellwire=debug")], "gateways = ['a=fcm', 'b=wns']")
            .unwrap();
    let again = read(&[], &[], &config.print()).unwrap();
    assert_eq!((again.batch_max, again.log.as_str(), again.gateways), (77, "warn,bellwire=debug", config.gateways));
}

#[test]
fn openid_provider_needs_all_settings() {
    let variables = [("BELLWIRE_OIDC_CLIENT_SECRET", "hush")];
    let all = [
        ("oidc_issuer", "https://accounts.google.com"),
        ("oidc_client_id", "bellwire"),
        ("public_url", "https://push.example.com"),
    ];
    let config = read(&all, &variables, "").unwrap();
    let client = config.oidc_client().unwrap();
    assert_eq!(
        (client.issuer, client.client_secret.expose()),
        ("https://accounts.google.com", "hush"),
        "to the letter"
    );
    assert_eq!((config.oidc_newcomer_role, config.oidc_domains.len()), (None, 0));
    for text in [config.print(), format!("{config:?}")] {
        assert!(!text.contains("hush"), "{text}");
    }
    for (left_out, _) in all.iter().filter(|(key, _)| *key != "oidc_issuer") {
        let some: Vec<_> = all.into_iter().filter(|(key, _)| key != left_out).collect();
        let text = refused(&some, &variables, "");
        assert_eq!(text, format!("{left_out} is empty, but must be given together with oidc_issuer"));
    }
    assert!(refused(&all, &[], "").starts_with("oidc_client_secret is empty"));
    let with = |key, value: &'static str| {
        let mut changed: Vec<_> = all.into_iter().filter(|(known, _)| *known != key).collect();
        changed.push((key, value));
        read(&changed, &variables, "").map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with("public_url", "http://localhost:8787"), Ok(()));
    assert!(with("public_url", "http://push.example.com").unwrap_err().starts_with("public_url is not on https"));
    assert_eq!(with("oidc_issuer", "http://127.0.0.1:8080/realms/a"), Ok(()));
    for issuer in
        ["http://id.example.com", "accounts.google.com", "https://id.example.com?a", "https://id.example.com#a"]
    {
        assert!(
            with("oidc_issuer", issuer).unwrap_err().contains("must be a URL that begins with https://"),
            "{issuer}"
        );
    }
    assert!(with("oidc_newcomer_role", "viewer").unwrap_err().starts_with("oidc_domains is empty"));
    assert!(with("oidc_newcomer_role", "admin").unwrap_err().contains("none or viewer or sender or operator"));
    let some = [&all[..], &[("oidc_domains", "example.com, example.org"), ("oidc_newcomer_role", "operator")]].concat();
    let config = read(&some, &variables, "").unwrap();
    assert_eq!((config.oidc_domains.len(), config.oidc_newcomer_role), (2, Some(Role::Operator)));
    assert!(read(&[], &[], "").unwrap().oidc_client().is_none());
}

#[test]
fn unknown_variables_are_reported() {
    let variables = [
        "BELLWIRE_LISSEN",
        "BELLWIRE_KEYS",
        "BELLWIRE_KEY",
        "BELLWIRE_LOG",
        "BELLWIRE_CONFIG",
        "BELLWIRE_SERVICE_HOST",
        "BELLWIRE_PORT",
    ];
    let variables: Vec<_> = variables.into_iter().chain(["PATH", "BELLWIRE_"]).map(|name| (name, "info")).collect();
    assert_eq!(
        read(&[], &variables, "").unwrap().unknown_variables(),
        ["BELLWIRE_", "BELLWIRE_KEYS", "BELLWIRE_LISSEN"]
    );
}

#[test]
fn data_lives_where_the_system_expects_it() {
    let home = |name: &str| (name == "HOME").then(|| "/home/a".to_owned());
    assert_eq!(default_data_dir(true, &home), "/var/lib/bellwire");
    assert_eq!(default_data_dir(false, &home), "/home/a/.local/share/bellwire");
    assert_eq!(default_data_dir(false, &|name| (name == "XDG_DATA_HOME").then(|| "/x".to_owned())), "/x/bellwire");
    assert_eq!(default_data_dir(false, &|_| None), ".bellwire");
}

#[test]
fn proxy_is_read_with_exemptions_and_redacted() {
    let proxy = ("BELLWIRE_EGRESS_PROXY", "http://user:s3cret@proxy:3128");
    let config =
        read(&[("egress_no_proxy", "corp.example, 10.0.0.0/8")], &[proxy], "egress_resolve = 'proxy'").unwrap();
    let egress = config.egress().unwrap();
    assert_eq!(egress.proxy().to_string(), "http://proxy:3128");
    assert!(egress.looks_up() && egress.exempts("a.corp.example") && egress.exempts("10.1.1.1"));
    assert!(!egress.exempts("fcm.googleapis.com"));
    for shown in [config.print(), format!("{config:?}")] {
        assert!(!shown.contains("s3cret"), "{shown}");
    }
    assert!(read(&[], &[], "").unwrap().egress().is_none());
    let tls = refused(&[], &[("BELLWIRE_EGRESS_PROXY", "https://user:s3cret@proxy")], "");
    assert!(tls.contains("spoken to by TLS (https://) are not supported") && !tls.contains("s3cret"), "{tls}");
    assert!(refused(&[("egress_no_proxy", "10.0.0.0/40")], &[], "").contains("networks such as 10.0.0.0/8"));
    assert!(refused(&[("nat64_prefixes", "64:ff9b:1::/47")], &[], "").contains("32, 40, 48, 56, 64 or 96 bits"));
    assert_eq!(read(&[("nat64_prefixes", "")], &[], "").unwrap().nat64_prefixes, []);
}

#[test]
fn small_machine_has_fewer_connections() {
    let connections = |pairs: &[(&'static str, &str)], url| {
        let mut config = read(pairs, &[], "").unwrap();
        if url {
            config.database_url = read(&[], &[("BELLWIRE_DATABASE_URL", "postgres://a")], "").unwrap().database_url;
        }
        config.connections()
    };
    assert_eq!(connections(&[("memory_mib", "512")], false), 25);
    assert_eq!(connections(&[("memory_mib", "256")], false), 10);
    assert_eq!(connections(&[("memory_mib", "256")], true), 25, "Postgres is elsewhere");
    assert_eq!(connections(&[("memory_mib", "256"), ("database_connections", "12")], false), 12);
}
