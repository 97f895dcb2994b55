token = get_token()
