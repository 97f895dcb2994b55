//! Prices that costs are counted with: those of `--prices`, from a file or from Google's Cloud Billing API. The latter are kept for
//! a week, as a price file for each region.

use std::path::{Path, PathBuf};

use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::cli::plan_file;
use crate::report::quoted;
use live::private_files::{cache_dir, create_dir};
use live::{ApiError, ErrorClass, LiveApi};
use model::diag::{Code, Diagnostic};
use model::prices::cloud_billing::BillingAccount;
use model::prices::{BadLine, Prices};

/// The environment variable with the URL of a stand-in for the Cloud Billing API: `http://127.0.0.1:PORT`.
pub const BILLING_ENDPOINT_VARIABLE: &str = "DASK_INFRA_BILLING_ENDPOINT";
/// The word of `--prices` for list prices of the Cloud Billing API.
const LIVE: &str = "live";
/// The days that kept prices are used without asking again.
const FRESH_DAYS: i32 = 7;
/// The way out of every failure to read prices.
const WITHOUT: &str = "without `--prices`, costs are counted with the built-in list";

/// A value of `--prices`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriceSource {
    /// A price file.
    File(PathBuf),
    /// The Cloud Billing API.
    CloudBilling(CloudPrices),
}

/// Prices of the Cloud Billing API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudPrices {
    /// The account whose prices are meant; `None` for list prices.
    pub account: Option<BillingAccount>,
}

impl PriceSource {
    /// Parses `live`, `billingAccounts/ID` or the path of a file. A file with such a name is `./live`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text == LIVE {
            return Ok(Self::CloudBilling(CloudPrices { account: None }));
        }
        if !text.starts_with(BillingAccount::PREFIX) {
            return Ok(Self::File(PathBuf::from(text)));
        }
        match BillingAccount::parse(text) {
            Some(account) => Ok(Self::CloudBilling(CloudPrices { account: Some(account) })),
            None => {
                Err("a billing account is named like billingAccounts/012345-6789AB-CDEF01; `gcloud billing \
                         accounts list` lists those you have access to"
                    .to_owned())
            }
        }
    }

    /// Returns the billing account whose prices are meant.
    pub fn account(&self) -> Option<&BillingAccount> {
        match self {
            Self::File(_) => None,
            Self::CloudBilling(CloudPrices { account }) => account.as_ref(),
        }
    }

    /// Returns the option as it is typed.
    pub fn option(&self) -> String {
        match self {
            Self::File(path) => format!("--prices {}", quoted(&path.display().to_string())),
            Self::CloudBilling(CloudPrices { account: None }) => format!("--prices {LIVE}"),
            Self::CloudBilling(CloudPrices { account: Some(account) }) => format!("--prices {account}"),
        }
    }
}

/// Reads a file of prices.
///
/// # Errors
/// It is not there, or a line is not in the format of `schemas/gcp-prices.tsv`.
pub fn load(path: &Path) -> Result<Prices, Diagnostic> {
    let shown = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|why| Diagnostic::error(Code::PriceFile, format!("{shown} cannot be read: {why}")))?;
    Prices::parse(&text).map_err(|BadLine { line, why }| {
        let what = format!("{shown}:{line} is not a line of a price file: {why}");
        Diagnostic::error(Code::PriceFile, what).help("docs/costs.md describes the format")
    })
}

/// Prices that were found, with what is to be said about them.
#[derive(Debug)]
pub struct FoundPrices {
    pub prices: Prices,
    pub warnings: Vec<Diagnostic>,
}

impl FoundPrices {
    fn of(prices: Prices) -> Self {
        Self { prices, warnings: Vec::new() }
    }

    /// Uses prices that are older than a week.
    fn old(prices: Prices, why: &str) -> Self {
        let what = format!("{why}: those of {} are used, which are kept on this machine", prices.date());
        Self { prices, warnings: vec![Diagnostic::warning(Code::PricesUnread, what)] }
    }
}

impl CloudPrices {
    /// The name that price files have for it.
    fn source(&self) -> String {
        match &self.account {
            None => "Cloud Billing".to_owned(),
            Some(account) => format!("Cloud Billing, {account}"),
        }
    }

    /// Returns the kept prices of a region, of any age, without network.
    ///
    /// # Errors
    /// There are none.
    pub fn kept(&self, region: &str) -> Result<FoundPrices, Diagnostic> {
        let today = today();
        match KeptPrices::of(self, region).and_then(|kept| kept.read()) {
            Some(prices) if is_fresh(&prices, today) => Ok(FoundPrices::of(prices)),
            Some(prices) => Ok(FoundPrices::old(prices, "`--offline` reads no prices")),
            None => {
                let what =
                    format!("`--offline` reads no prices, and none of {region} are kept on this machine");
                let option = PriceSource::CloudBilling(self.clone()).option();
                Err(Diagnostic::error(Code::PricesUnread, what).help(format!(
                    "plan once without `--offline`: it keeps what `{option}` reads; {WITHOUT}"
                )))
            }
        }
    }

    /// Returns the prices of a region: the kept ones for a week, then those that the API answers.
    ///
    /// # Errors
    /// They cannot be read, and none are kept that would do. `explain` says why a request failed.
    pub async fn read(
        &self,
        region: &str,
        api: &dyn LiveApi,
        explain: impl Fn(&ApiError) -> Diagnostic,
    ) -> Result<FoundPrices, Diagnostic> {
        let today = today();
        let place = KeptPrices::of(self, region);
        let kept = place.as_ref().and_then(KeptPrices::read);
        if let Some(prices) = kept.as_ref().filter(|prices| is_fresh(prices, today)) {
            return Ok(FoundPrices::of(prices.clone()));
        }
        let failed = |why: &str| format!("prices of Cloud Billing cannot be read: {why}");
        let skus = match live::prices::read_skus(api, region, self.account.as_ref()).await {
            Ok(skus) => skus,
            Err(error) => {
                let Diagnostic { message, help, .. } = explain(&error);
                return match kept.filter(|_| is_of_the_network(&error)) {
                    Some(prices) => Ok(FoundPrices::old(prices, &failed(&message))),
                    None => Err(Diagnostic::error(Code::PricesUnread, failed(&message))
                        .help(help.map_or(WITHOUT.to_owned(), |help| format!("{help}; {WITHOUT}")))),
                };
            }
        };
        if skus.is_empty() {
            let what = failed(&format!("its catalogue has none of the region {region}"));
            return Err(Diagnostic::error(Code::PricesUnread, what)
                .help(format!("check `location` of [gke]: `gcloud compute regions list`; {WITHOUT}")));
        }
        let text = skus.price_file(&today.to_string(), &self.source());
        let prices = Prices::parse(&text).map_err(|BadLine { line, why }| {
            Diagnostic::error(Code::PricesUnread, failed(&format!("line {line}: {why}")))
        })?;
        let mut found = FoundPrices::of(prices);
        if let Err(why) =
            place.map_or(Err("neither XDG_CACHE_HOME nor HOME is set".to_owned()), |place| place.write(&text))
        {
            let what = format!("prices cannot be kept, so the next command reads them again: {why}");
            found.warnings.push(Diagnostic::warning(Code::PricesUnread, what));
        }
        Ok(found)
    }
}

/// Returns true if a request failed for a reason that says nothing about the rights of its sender.
fn is_of_the_network(error: &ApiError) -> bool {
    match error.class {
        ErrorClass::Unavailable
        | ErrorClass::Lost
        | ErrorClass::Throttled
        | ErrorClass::Quota
        | ErrorClass::Busy
        | ErrorClass::Untrusted
        | ErrorClass::Unreadable
        | ErrorClass::TooLarge => true,
        ErrorClass::NotFound
        | ErrorClass::AlreadyExists
        | ErrorClass::Conflict
        | ErrorClass::LockUnsure
        | ErrorClass::Unauthenticated
        | ErrorClass::Denied
        | ErrorClass::Invalid
        | ErrorClass::Other => false,
    }
}

/// A price file in the cache folder: `~/.cache/dask-infra/prices-us-central1.tsv`, `prices-012345-6789AB-CDEF01-us-central1.tsv`.
struct KeptPrices {
    folder: PathBuf,
    file: String,
    source: String,
    region: String,
}

impl KeptPrices {
    /// Returns the place for the prices of a region; `None` without a cache folder, or if the region's name is none.
    fn of(asked: &CloudPrices, region: &str) -> Option<Self> {
        let is_name = region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let account = asked.account.as_ref().map(|account| format!("{}-", account.id())).unwrap_or_default();
        // Those of a stand-in for the API are no prices of Google.
        let stand_in = std::env::var_os(BILLING_ENDPOINT_VARIABLE).map_or("", |_| "stand-in-");
        (is_name && !region.is_empty()).then_some(())?;
        Some(Self {
            folder: cache_dir()?.join("dask-infra"),
            file: format!("prices-{stand_in}{account}{region}.tsv"),
            source: asked.source(),
            region: region.to_owned(),
        })
    }

    /// Reads it. A file that is broken, or has other prices, is as good as none.
    fn read(&self) -> Option<Prices> {
        let prices = Prices::parse(&std::fs::read_to_string(self.folder.join(&self.file)).ok()?).ok()?;
        let is_this = prices.origin() == model::prices::Origin::Source(self.source.clone())
            && prices.regions().eq([self.region.as_str()]);
        is_this.then_some(prices)
    }

    fn write(&self, text: &str) -> Result<(), String> {
        let path = create_dir(&self.folder)?.join(&self.file);
        plan_file::write(&path, text.as_bytes()).map_err(|why| format!("{}: {why}", path.display()))
    }
}

/// Returns true for prices of the last week. Those of a later day are of a clock that was wrong.
fn is_fresh(prices: &Prices, today: Date) -> bool {
    let age = prices.date().parse::<Date>().and_then(|date| today.since(date));
    age.is_ok_and(|age| (0..FRESH_DAYS).contains(&age.get_days()))
}

fn today() -> Date {
    jiff::Timestamp::now().to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_live_an_account_or_a_file() {
        let account = "billingAccounts/012345-6789AB-CDEF01";
        for text in ["live", account, "prices.tsv", "./live"] {
            assert_eq!(PriceSource::parse(text).unwrap().option(), format!("--prices {text}"));
        }
        assert_eq!(PriceSource::parse("./live"), Ok(PriceSource::File("./live".into())));
        assert!(
            PriceSource::parse("billingAccounts/mine").unwrap_err().contains("gcloud billing accounts list")
        );
    }

    #[test]
    fn prices_are_fresh_for_a_week() {
        let today: Date = "2026-11-30".parse().unwrap();
        for (date, fresh) in [
            ("2026-11-30", true),
            ("2026-11-24", true),
            ("2026-11-23", false),
            ("2025-11-30", false),
            ("2026-12-01", false),
            ("2026-99-99", false),
        ] {
            let prices = Prices::parse(&format!("date\t{date}\nwhat\tname\tus-central1\n")).unwrap();
            assert_eq!(is_fresh(&prices, today), fresh, "{date}");
        }
    }
}
