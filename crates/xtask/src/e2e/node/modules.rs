//! x
pub async fn modules(_v: &super::visit::Visit<'_>) -> anyhow::Result<()> {
    Ok(())
}
