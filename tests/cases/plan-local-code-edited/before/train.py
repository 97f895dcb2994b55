print('before')
