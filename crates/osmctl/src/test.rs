//! `osmctl test`: renders cases and compares the result with what was recorded.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use osm_user_data::Stage;

use crate::difference::{self, Difference};
use crate::output;
use crate::tree::Tree;
use crate::{input, pools};

/// Name of the input of a case.
const INPUT: &str = "case.yaml";

/// Name of the folder with the recorded result.
const EXPECTED: &str = "expected";

/// Compare what cases render to with what was recorded
///
/// A case is a folder with the file case.yaml: at least one MachineDeployment, and profiles and settings if
/// the case needs its own. The folder `expected` beside it contains the files of the machines. The flag
/// --bless writes it. Read the difference before you commit it.
#[derive(Args)]
#[command(after_help = "\
Examples:
  # Record the cases below tests/ with the profiles in profiles/
  osmctl test tests/ -f profiles/ --bless

  # Compare, for example in CI
  osmctl test tests/ -f profiles/

Exit codes: 0 all cases pass, 1 a case fails, 2 usage error.")]
pub struct Test {
    /// Folder with cases: each folder below it that contains a case.yaml
    folder: PathBuf,
    /// File or folder that belongs to every case; can be repeated
    #[arg(short, long, value_name = "PATH")]
    filename: Vec<PathBuf>,
    /// Record the current result of each case
    #[arg(long)]
    bless: bool,
}

/// The result of a case.
struct Outcome {
    /// Folder of the case.
    name: String,
    result: Result<Vec<Difference>>,
}

impl Outcome {
    fn passed(&self) -> bool {
        self.result.as_ref().is_ok_and(Vec::is_empty)
    }

    fn text(&self, verb: &str) -> String {
        match &self.result {
            Ok(differences) if differences.is_empty() => format!("{verb} {}\n", self.name),
            Ok(differences) => {
                let differences: String = differences.iter().map(Difference::unified).collect();
                format!("FAIL {}\n{differences}", self.name)
            }
            Err(error) => format!("FAIL {}\n{error:#}\n", self.name),
        }
    }
}

impl Test {
    /// Runs every case and prints.
    pub fn run(self) -> Result<ExitCode> {
        let mut cases = Vec::new();
        find(&self.folder, &mut cases)?;
        cases.sort();
        if cases.is_empty() {
            bail!(
                "{} contains no case; put the manifests of a case into a folder, in a file with the name {INPUT}",
                self.folder.display()
            );
        }
        let mut outcomes = Vec::new();
        for case in &cases {
            outcomes.push(Outcome {
                name: case.display().to_string(),
                result: self.case(case),
            });
        }
        let failed = outcomes.iter().filter(|outcome| !outcome.passed()).count();
        let verb = if self.bless { "recorded" } else { "ok" };
        let text: String = outcomes.iter().map(|outcome| outcome.text(verb)).collect();
        output::print(&text)?;
        if failed == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        output::note(&format!(
            "osmctl: {failed} of {} failed; if the new results are right, record them with --bless",
            output::count(outcomes.len(), "case")
        ));
        Ok(ExitCode::FAILURE)
    }

    /// Differences between what was recorded and what a case renders to now.
    fn case(&self, case: &Path) -> Result<Vec<Difference>> {
        let own = case.join(INPUT);
        let sources: Vec<PathBuf> = [own].into_iter().chain(self.filename.iter().cloned()).collect();
        let manifests = input::manifests(&sources)?;
        if manifests.machine_deployments.is_empty() {
            bail!("{INPUT} contains no MachineDeployment; add one");
        }
        let settings = input::settings(&manifests, None)?.settings;
        let selected = pools::select(&manifests, &sources, &settings, None)?;
        let new = Tree::of(&pools::render(&selected)?, &Stage::ALL)?;
        let folder = case.join(EXPECTED);
        if self.bless {
            new.write(&folder)?;
            return Ok(Vec::new());
        }
        let old = Tree::read(&folder)?;
        let old = old.with_context(|| {
            format!(
                "nothing is recorded in {}; record it with --bless",
                folder.display()
            )
        })?;
        Ok(difference::between(&old, &new))
    }
}

/// Folders below that contain a case. Symbolic links are not followed.
fn find(folder: &Path, cases: &mut Vec<PathBuf>) -> Result<()> {
    let failed = || format!("cannot read {}; check the path", folder.display());
    if folder.join(INPUT).is_file() {
        cases.push(folder.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(folder).with_context(failed)? {
        let entry = entry.with_context(failed)?;
        if entry.file_type().with_context(failed)?.is_dir() {
            find(&entry.path(), cases)?;
        }
    }
    Ok(())
}
