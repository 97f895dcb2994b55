print('after')
