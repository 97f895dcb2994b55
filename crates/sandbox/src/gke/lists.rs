//! Lists of Compute Engine, page by page. Source: its discovery document v1: every `…List` has `kind`, `id`, `items`,
//! `nextPageToken` and `selfLink`; the parameters are `filter`, `maxResults` and `pageToken`.

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::compute;
use super::errors::{Code, Refusal};
use super::machines;
use super::path::Collection;
use super::places;
use super::state::Gke;
use model::catalog;

/// Items of a page: the default, and the most that can be asked for.
const PAGE: usize = 500;

/// The name of a list.
struct Named<'n> {
    /// `compute#zoneList`.
    kind: &'static str,
    /// `projects/p/zones`.
    path: &'n str,
}

/// Zones or regions of a project.
pub(super) fn places(project: &str, regions: bool, query: &str) -> Result<Value, Refusal> {
    let render = |place: &str| compute::render_place(project, place);
    let (word, kind, all): (_, _, Vec<Value>) = match regions {
        true => ("regions", "compute#regionList", places::regions().map(render).collect()),
        false => {
            let zones = places::regions().flat_map(places::zones);
            ("zones", "compute#zoneList", zones.map(|zone| render(&zone)).collect())
        }
    };
    page(&Named { kind, path: &format!("projects/{project}/{word}") }, all, query)
}

impl Gke {
    /// All of a sort in a zone or a region.
    pub(super) fn listed(
        &self,
        project: &str,
        place: &str,
        collection: Collection,
        query: &str,
    ) -> Result<Value, Refusal> {
        let of_places = if places::is_zone(place) { "zones" } else { "regions" };
        let is_there =
            places::exists(place) && (places::is_zone(place) || collection == Collection::Operations);
        if !is_there {
            let text = format!("The resource 'projects/{project}/{of_places}/{place}' was not found");
            return Err(Refusal::new(Code::NotFound, text));
        }
        let (word, kind, all): (_, _, Vec<Value>) = match collection {
            Collection::InstanceGroupManagers => (
                "instanceGroupManagers",
                "compute#instanceGroupManagerList",
                self.instance_groups(project, place, true),
            ),
            Collection::InstanceGroups => {
                ("instanceGroups", "compute#instanceGroupList", self.instance_groups(project, place, false))
            }
            Collection::MachineTypes => {
                let here = catalog::machines().filter(|machine| machines::has_machine(place, &machine.name));
                let all = here.map(|machine| compute::machine_type(project, place, &machine.name));
                ("machineTypes", "compute#machineTypeList", all.collect())
            }
            Collection::AcceleratorTypes => {
                let here = catalog::accelerators().filter(|gpu| machines::has_gpu(place, &gpu.kind));
                let all = here.map(|gpu| compute::accelerator_type(project, place, &gpu.kind));
                ("acceleratorTypes", "compute#acceleratorTypeList", all.collect())
            }
            // GKE's own work is not among the operations of Compute Engine here.
            Collection::Operations => ("operations", "compute#operationList", Vec::new()),
        };
        page(&Named { kind, path: &format!("projects/{project}/{of_places}/{place}/{word}") }, all, query)
    }
}

/// One page of a list; a token is the number of the first item.
fn page(named: &Named<'_>, all: Vec<Value>, query: &str) -> Result<Value, Refusal> {
    let asked = |key: &str| {
        let of =
            |pair: &str| pair.split_once('=').filter(|(name, _)| *name == key).map(|(_, text)| decoded(text));
        query.split('&').find_map(of).filter(|text| !text.is_empty())
    };
    let invalid =
        |key: &str, text: &str| Refusal::invalid(format!("Invalid value for field '{key}': '{text}'."));
    let most = match asked("maxResults") {
        Some(text) => text
            .parse::<usize>()
            .ok()
            .filter(|most| *most <= PAGE)
            .ok_or_else(|| invalid("maxResults", &text))?,
        None => PAGE,
    };
    let most = if most == 0 { PAGE } else { most };
    let first = match asked("pageToken") {
        Some(text) => text.parse::<usize>().map_err(|_| invalid("pageToken", &text))?,
        None => 0,
    };
    let filter = asked("filter");
    let kept = |item: &Value| filter.as_deref().is_none_or(|filter| passes(item, filter));
    let all: Vec<Value> = all.into_iter().filter(kept).collect();
    let mut list = json!({
        "kind": named.kind,
        "id": named.path,
        "selfLink": format!("https://www.googleapis.com/compute/v1/{}", named.path),
    });
    let next = first.saturating_add(most);
    if next < all.len() {
        list["nextPageToken"] = json!(next.to_string());
    }
    let items: Vec<Value> = all.into_iter().skip(first).take(most).collect();
    // As Compute Engine writes it: no field for an empty list.
    if !items.is_empty() {
        list["items"] = Value::Array(items);
    }
    Ok(list)
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// The simple form of a filter, `name = "value"`. Of any other form nothing is left out: clients filter once more.
fn passes(item: &Value, filter: &str) -> bool {
    let Some((key, value)) = filter.trim().trim_matches(['(', ')']).split_once('=') else { return true };
    let (key, value) = (key.trim(), value.trim().trim_matches('"'));
    let is_simple = key.chars().all(char::is_alphanumeric) && !value.contains([' ', '*', '"']);
    item[key].as_str().filter(|_| is_simple).is_none_or(|text| text == value)
}
