//! `cargo xtask metrics`: docs/metrics.md, from the metrics that the services register.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::Result;
use csr_approver::metrics::JoiningMetrics;
use osc_controller::metrics::Sizes;
use osm_api::rbac::Service;
use osm_runtime::admission::AdmissionMetrics;
use osm_runtime::metrics::catalog::Description;
use osm_runtime::metrics::label::{Label, Values};
use secret_syncer::io::reporting::PublishMetrics;

use crate::generated::File;

pub fn files() -> Result<Vec<File>> {
    Ok(vec![(crate::root().join("docs/metrics.md"), page()?)])
}

/// What a service registers when it starts.
fn of(service: Service) -> Result<osm_runtime::Metrics> {
    let metrics = osm_runtime::Metrics::of(service)?;
    match service {
        Service::OspController => drop(AdmissionMetrics::new(&metrics)?),
        Service::OscController => drop((AdmissionMetrics::new(&metrics)?, Sizes::new(&metrics)?)),
        Service::SecretSyncer => drop(PublishMetrics::new(&metrics)?),
        Service::CsrApprover => drop(JoiningMetrics::new(&metrics)?),
    }
    Ok(metrics)
}

const INTRODUCTION: &str = "# Metrics

<!-- Generated from the metrics in the code by `cargo xtask metrics`. Don't edit. -->

This page is for operators. It lists every metric that the services serve on `/metrics`.
[Monitor](monitor.md) describes how to scrape them, the alerts and the dashboard.

- A metric with labels appears once it has a value. A histogram has the suffixes `_bucket`, `_sum` and `_count`.
- No label contains the name of an object, and each label has a closed [set of values](#labels).
- Every service also has the usual `process_*` metrics.
";

const LABELS: &str = "
## Labels

| Label | Values |
|---|---|
";

fn page() -> Result<String> {
    let mut services = Vec::new();
    for service in Service::ALL {
        services.push((service, of(service)?.catalog.descriptions()));
    }
    let number = |name: &str| {
        let has =
            |(_, metrics): &&(Service, Vec<Description>)| metrics.iter().any(|metric| metric.name == name);
        services.iter().filter(has).count()
    };
    let mut page = INTRODUCTION.to_owned();
    let all = services.len();
    for (title, range) in [("All services", all..=all), ("Several services", 2..=all - 1)] {
        let here = services.iter().flat_map(|(_, metrics)| metrics);
        let here = here.filter(|metric| range.contains(&number(&metric.name)));
        write!(page, "\n## {title}\n{}", table(here))?;
    }
    for (service, metrics) in &services {
        let own: Vec<&Description> = metrics
            .iter()
            .filter(|metric| number(&metric.name) == 1)
            .collect();
        if !own.is_empty() {
            write!(page, "\n## {}\n{}", service.name(), table(own.into_iter()))?;
        }
    }
    page.push_str(LABELS);
    page.push_str(&labels(services.iter().flat_map(|(_, metrics)| metrics)));
    Ok(page)
}

fn table<'a>(metrics: impl Iterator<Item = &'a Description>) -> String {
    let ours = metrics.filter(|metric| !metric.name.starts_with("process_"));
    let mut rows: Vec<String> = ours.map(row).collect();
    rows.sort();
    rows.dedup();
    format!(
        "\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n{}",
        rows.concat()
    )
}

fn row(metric: &Description) -> String {
    let Description {
        name,
        kind,
        labels,
        help,
    } = metric;
    let labels: Vec<String> = labels.iter().map(|label| format!("`{}`", label.name)).collect();
    let labels = match labels.is_empty() {
        true => " ".to_owned(),
        false => format!(" {} ", labels.join(", ")),
    };
    format!(
        "| `{name}` | {kind} |{labels}| {}. |\n",
        help.trim_end_matches('.')
    )
}

/// A row for each label and set of values.
fn labels<'a>(metrics: impl Iterator<Item = &'a Description>) -> String {
    let labels = metrics.flat_map(|metric| &metric.labels);
    let rows: BTreeSet<String> = labels
        .map(|label| format!("| `{}` | {} |\n", label.name, values(label)))
        .collect();
    rows.into_iter().collect()
}

fn values(label: &Label) -> String {
    match label.values {
        Values::Set { words, .. } => words.to_owned(),
        Values::These(values) => {
            // Of a long list, the first show what the others are.
            let shown = if values.len() > 12 { 3 } else { values.len() };
            let mut words: Vec<String> = values
                .iter()
                .take(shown)
                .map(|value| format!("`{value}`"))
                .collect();
            if shown < values.len() {
                words.push(format!("and {} others", values.len() - shown));
            }
            words.join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osm_api::Reason;
    use osm_api::config::UserDataBytes;
    use osm_api::profile::CloudProvider;
    use osm_runtime::metrics::{ConditionGauge, Outcome};
    use secret_syncer::plan::findings::Cause;

    use super::*;
    use crate::generated;

    /// What a service serves once every metric has a value.
    fn served(service: Service) -> (osm_runtime::Metrics, String) {
        let metrics = osm_runtime::Metrics::of(service).unwrap();
        let took = Duration::from_millis(3);
        metrics.reconciled(Outcome::Success, "", took);
        metrics.reconciled(Outcome::Timeout, Reason::Timeout.as_str(), took);
        metrics.requested("single", "get", "serviceaccounts/token", 0, took);
        metrics.requested("worker", "list", "secrets", 409, took);
        metrics.watch_failed("single", "settings");
        metrics.invalid_object("single", "pool-settings");
        metrics.ignored_objects("single", "machines").inc();
        ConditionGauge::new(&metrics).count("a", "Rendered", true, Reason::Rendered);
        match service {
            Service::OspController => {}
            Service::OscController => {
                let bytes = UserDataBytes {
                    bootstrap: 1,
                    provisioning: 2,
                };
                let of_service = RenderMetrics::new(&metrics).unwrap();
                of_service.sizes.note("a", Some((CloudProvider::Aws, bytes)));
            }
            Service::SecretSyncer => PublishMetrics::new(&metrics)
                .unwrap()
                .published(Cause::NewContent),
            Service::CsrApprover => {
                let of_service = JoiningMetrics::new(&metrics).unwrap();
                of_service.approved(Reason::PoolMachine);
                let pending = &of_service.pending;
                pending.with_label_values(&[Reason::NodeExists.as_str()]).set(1);
            }
        }
        let text = String::from_utf8(metrics.encode()).unwrap();
        (metrics, text)
    }

    #[test]
    fn the_committed_page_is_up_to_date() {
        assert!(
            generated::stale(files().unwrap()).is_empty(),
            "run `cargo xtask metrics`"
        );
    }

    #[test]
    fn every_metric_is_served_once_it_has_a_value() {
        let all = Service::ALL.map(|service| (service.name(), served(service)));
        for (service, (metrics, text)) in &all {
            for Description { name, kind, .. } in metrics.catalog.descriptions() {
                let type_ = format!("# TYPE {name} {kind}\n");
                assert!(text.contains(&type_), "{service}: {name} has no value:\n{text}");
            }
        }
    }

    #[test]
    fn every_label_has_a_closed_set_which_has_its_values() {
        for service in Service::ALL {
            let (metrics, text) = served(service);
            let all = metrics.catalog.descriptions();
            let samples = text
                .lines()
                .filter_map(|line| line.split_once('{').filter(|_| !line.starts_with('#')));
            let mut checked = 0;
            for (name, rest) in samples {
                let name = ["_bucket", "_sum", "_count"]
                    .iter()
                    .find_map(|suffix| {
                        name.strip_suffix(suffix)
                            .filter(|name| all.iter().any(|metric| metric.name == *name))
                    })
                    .unwrap_or(name);
                let metric = all.iter().find(|metric| metric.name == name).unwrap();
                let (labels, _) = rest.split_once("} ").unwrap();
                for (label, value) in labels.split("\",").filter_map(|label| label.split_once("=\"")) {
                    let value = value.trim_end_matches('"');
                    let known = metric.labels.iter().find(|known| known.name == label);
                    // The buckets of a histogram are written down with it.
                    let is_bucket = label == "le" && metric.kind == "histogram";
                    let has = known.is_some_and(|known| known.values.has(value));
                    assert!(
                        is_bucket || has,
                        "{}: {name} has {label}={value:?}",
                        service.name()
                    );
                    checked += 1;
                }
            }
            assert!(checked > 20, "{checked}");
            for label in all.iter().flat_map(|metric| &metric.labels) {
                assert!(!values(label).is_empty(), "{}", label.name);
                // Resources come from the paths of requests, kinds from the code: `requests_are_classified_as_rbac_does_and_without_names`.
                let is_of_code = ["resource", "kind"].contains(&label.name);
                assert!(
                    is_of_code || !label.values.has("workers-kube-system-config"),
                    "{}",
                    label.name
                );
            }
        }
    }
}
