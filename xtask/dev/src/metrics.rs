//! `cargo xtask metrics`: docs/metrics.md, from the metrics that the services register.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use csr_approver::metrics::JoiningMetrics;
use osc_controller::metrics::largest_user_data;
use osm_api::rbac::Service;
use osm_runtime::admission::AdmissionMetrics;
use osm_runtime::fleet::FleetMetrics;
use prometheus::core::Collector;
use secret_syncer::io::reporting::PublishMetrics;

use crate::generated::File;

pub fn files() -> Result<Vec<File>> {
    Ok(vec![(crate::root().join("docs/metrics.md"), page()?)])
}

/// What a service registers when it starts.
fn of(service: Service) -> Result<osm_runtime::Metrics> {
    let metrics = osm_runtime::Metrics::of(service)?;
    if service != Service::OspController {
        drop(FleetMetrics::new(&metrics)?);
    }
    match service {
        Service::OspController => drop(AdmissionMetrics::new(&metrics)?),
        Service::OscController => drop(largest_user_data(&metrics)?),
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
- Only `osm_cluster_problem` has names of objects in a label, while there is a problem. Each other label has a closed [set of values](#labels).
- Every service also has the usual `process_*` metrics.
";

/// Kept by hand: the values are constants all over the services.
const LABELS: &str = "
## Labels

| Label | Values |
|---|---|
| `cause` | `Missing`, `NewContent`, `NewRevision`, `Modified`, `TokensInvalid`, `RenewalDue`, `RoleModified` |
| `cloud_provider` | a [cloud provider](compatibility.md) |
| `cluster` | `management`, `worker`, `single`; in `osm_cluster_problem`, the namespace of a WorkerCluster |
| `code` | an HTTP status code, or 0 without a response |
| `component` | the name of a service |
| `condition` | `Accepted`, `Copied`, `Joining`, `Published`, `Publishing`, `Rendered`, `Rendering` |
| `reason` | a [reason](reasons.md); in `osm_reconciles_total`, empty on success |
| `resource` | a resource, as RBAC names it |
| `result` of `osm_admission_*` | `allowed`, `denied`, `unchecked`, `unreadable` |
| `result` of `osm_joining_*` | `approved`, `denied` |
| `result` of `osm_reconcile*` | `success`, `conflict`, `failure`, `timeout`, `panic` |
| `stage` | `bootstrap`, `provisioning` |
| `status` | `True`, `False` |
| `verb` | `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `other` |
| `version` | the version of the service |
| `watch` | the objects that a watch is for |
";

/// Rows of the tables, by name of the metric, in order.
type Rows = BTreeMap<String, String>;

fn page() -> Result<String> {
    let mut services = Vec::new();
    for service in Service::ALL {
        services.push((service, rows(&of(service)?)));
    }
    let number = |name: &str| {
        let has = |(_, rows): &&(Service, Rows)| rows.contains_key(name);
        services.iter().filter(has).count()
    };
    let mut page = INTRODUCTION.to_owned();
    let all = services.len();
    for (title, range) in [("All services", all..=all), ("Several services", 2..=all - 1)] {
        let mut here: Rows = services.iter().flat_map(|(_, rows)| rows.clone()).collect();
        here.retain(|name, _| range.contains(&number(name)));
        write!(page, "\n## {title}\n{}", table(&here))?;
    }
    for (service, rows) in &services {
        let mut own = rows.clone();
        own.retain(|name, _| number(name) == 1);
        if !own.is_empty() {
            write!(page, "\n## {}\n{}", service.name(), table(&own))?;
        }
    }
    page.push_str(LABELS);
    Ok(page)
}

fn table(rows: &Rows) -> String {
    let rows: String = rows.values().map(String::as_str).collect();
    format!("\n| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n{rows}")
}

fn rows(metrics: &osm_runtime::Metrics) -> Rows {
    let added = metrics.catalog.added.lock();
    added.iter().flat_map(|metric| row(&**metric)).collect()
}

fn row(metric: &dyn Collector) -> Option<(String, String)> {
    let (desc, family) = (
        metric.desc().into_iter().next()?,
        metric.collect().into_iter().next()?,
    );
    let name = desc.fq_name.clone();
    let kind = format!("{:?}", family.get_field_type()).to_lowercase();
    let labels: Vec<String> = desc
        .variable_labels
        .iter()
        .map(|label| format!("`{label}`"))
        .collect();
    let labels = if labels.is_empty() {
        " ".to_owned()
    } else {
        format!(" {} ", labels.join(", "))
    };
    let help = desc.help.trim_end_matches('.');
    let row = format!("| `{name}` | {kind} |{labels}| {help}. |\n");
    Some((name, row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generated::Generate;

    #[test]
    fn a_label_has_one_row_or_one_for_each_metric_that_it_names() {
        let rows = LABELS.lines().filter_map(|line| line.strip_prefix("| `"));
        let labels: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
        let different: std::collections::BTreeSet<&&str> = labels.iter().collect();
        assert_eq!(different.len(), labels.len(), "{labels:?}");
    }

    #[test]
    fn the_committed_page_is_up_to_date() {
        Generate::CHECK.run("metrics", files()).unwrap();
    }
}
