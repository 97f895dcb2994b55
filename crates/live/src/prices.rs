//! Reads prices of Google's Cloud Billing API, page by page. Each page is dropped once its prices of the region are taken.
//!
//! `services.skus.list` of v1 needs no permission, only a project in which the API is enabled ("Access control for Cloud Billing
//! APIs" in the documentation). `billingAccounts.skus.prices.list` of v1beta needs [`CONTRACT_PERMISSION`] on the billing account.

use form_urlencoded::Serializer;
use serde_json::Value;

use crate::retry::get;
use crate::{ApiError, ErrorClass, LiveApi, Request};
use model::prices::cloud_billing::{BillingAccount, COMPUTE_ENGINE, KUBERNETES_ENGINE, Skus};
use model::resource::Api;

/// The permission on a billing account that its prices need. Source: "Roles and permissions" of IAM, and Google's page on prices of
/// a contract in the pricing calculator.
pub const CONTRACT_PERMISSION: &str = "billing.billingAccountPrices.list";
/// The least predefined role with that permission.
pub const CONTRACT_ROLE: &str = "roles/billing.viewer";

/// The most pages of a list. The catalogue of Compute Engine had seven of this size in 2026.
const MAX_PAGES: usize = 20;
/// The largest page that both lists allow. Source: their REST references.
const PAGE_SIZE: &str = "5000";
/// The fields of SKUs that are read; the others are two thirds of an answer. Source: `fields` among the standard query parameters
/// of Google's APIs.
const SKU_FIELDS: &str = "nextPageToken,skus(skuId,description,category(resourceGroup,usageType),serviceRegions,\
                          pricingInfo(pricingExpression(usageUnit,tieredRates)))";

/// Reads the SKUs of a region with their list prices, or with the prices of a billing account.
///
/// # Errors
/// A page cannot be read, or there are too many of them.
pub async fn read_skus(
    api: &dyn LiveApi,
    region: &str,
    account: Option<&BillingAccount>,
) -> Result<Skus, ApiError> {
    let mut skus = Skus::new(region);
    for service in [COMPUTE_ENGINE, KUBERNETES_ENGINE] {
        let path = format!("/v1/services/{service}/skus");
        read_pages(api, &path, &[("fields", SKU_FIELDS)], |page| {
            skus.add_page(&page);
            false
        })
        .await?;
    }
    if let Some(account) = account {
        skus.expect_contract_prices();
        // `-` stands for all SKUs; those of other services come between.
        let path = format!("/v1beta/{account}/skus/-/prices");
        read_pages(api, &path, &[], |page| {
            skus.add_contract_prices(&page);
            skus.is_complete()
        })
        .await?;
    }
    Ok(skus)
}

/// Reads the pages of a list until there is none left, or `take` returns true because it needs no more.
async fn read_pages(
    api: &dyn LiveApi,
    path: &str,
    parameters: &[(&str, &str)],
    mut take: impl FnMut(Value) -> bool,
) -> Result<(), ApiError> {
    let mut token = String::new();
    let mut request = Request::get(Api::Billing, path);
    for _ in 0..MAX_PAGES {
        let mut query = Serializer::new(String::new());
        query.append_pair("pageSize", PAGE_SIZE).append_pair("currencyCode", "USD").extend_pairs(parameters);
        if !token.is_empty() {
            query.append_pair("pageToken", &token);
        }
        request = Request::get(Api::Billing, format!("{path}?{}", query.finish()));
        let page = get(api, request.clone()).await?;
        token = page["nextPageToken"].as_str().unwrap_or_default().to_owned();
        if take(page) || token.is_empty() {
            return Ok(());
        }
    }
    Err(request.failed(ErrorClass::Other, format!("the list has more than {MAX_PAGES} pages")))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use model::catalog::PriceModel;

    /// Answers with pages in their order, and keeps what was asked.
    struct Pages {
        left: Mutex<Vec<Value>>,
        asked: Mutex<Vec<String>>,
    }

    impl Pages {
        fn of(pages: &[&str]) -> Self {
            let left = pages.iter().rev().map(|page| serde_json::from_str(page).unwrap()).collect();
            Self { left: Mutex::new(left), asked: Mutex::default() }
        }
    }

    impl LiveApi for Pages {
        fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
            assert_eq!(request.api, Api::Billing);
            self.asked.lock().unwrap().push(request.path);
            let page = self.left.lock().unwrap().pop();
            // A list without an end.
            async move { Ok(page.unwrap_or_else(|| json!({ "nextPageToken": "more" }))) }.boxed()
        }
    }

    const COMPUTE: [&str; 2] = [
        include_str!("../../../tests/data/cloud-billing/compute-1.json"),
        include_str!("../../../tests/data/cloud-billing/compute-2.json"),
    ];
    const KUBERNETES: &str = include_str!("../../../tests/data/cloud-billing/kubernetes.json");
    const ACCOUNT: &str = include_str!("../../../tests/data/cloud-billing/account.json");

    #[tokio::test]
    async fn all_pages_are_read_with_the_token_of_the_one_before() {
        let api = Pages::of(&[COMPUTE[0], COMPUTE[1], KUBERNETES]);
        let prices = read_skus(&api, "us-central1", None).await.unwrap().prices("2026-11-30", "x").unwrap();
        assert_eq!(prices.fee("us-central1"), Some(0.1));
        let price = |name| prices.machine(name, "us-central1", PriceModel::OnDemand);
        assert!(price("e2-standard-4").is_some() && price("g2-standard-4").is_some());
        let asked = api.asked.lock().unwrap().clone();
        assert_eq!(asked.len(), 3, "{asked:?}");
        assert!(
            asked[0].starts_with("/v1/services/6F81-5844-456A/skus?pageSize=5000&currencyCode=USD&fields=")
        );
        assert!(!asked[0].contains("pageToken") && asked[1].ends_with("&pageToken=page+two"), "{asked:?}");
        assert!(asked[2].starts_with("/v1/services/CCD8-9BF1-090E/skus?"), "{asked:?}");
    }

    #[tokio::test]
    async fn prices_of_an_account_are_read_after_the_skus() {
        let account = BillingAccount::parse("billingAccounts/012345-6789AB-CDEF01").unwrap();
        let api = Pages::of(&[COMPUTE[0], COMPUTE[1], KUBERNETES, ACCOUNT]);
        let skus = read_skus(&api, "us-central1", Some(&account)).await.unwrap();
        assert_eq!(skus.prices("2026-11-30", "x").unwrap().fee("us-central1"), Some(0.08));
        let asked = api.asked.lock().unwrap().clone();
        let path =
            "/v1beta/billingAccounts/012345-6789AB-CDEF01/skus/-/prices?pageSize=5000&currencyCode=USD";
        assert_eq!(asked.last().map(String::as_str), Some(path));
    }

    #[tokio::test]
    async fn a_list_without_an_end_is_given_up() {
        let api = Pages::of(&[]);
        let error = read_skus(&api, "us-central1", None).await.unwrap_err();
        assert!(error.message.contains("more than 20 pages"), "{error}");
        assert_eq!(api.asked.lock().unwrap().len(), MAX_PAGES);
    }
}
